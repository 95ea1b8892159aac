// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package limiter decides whether one more request of a user fits into a budget such as 5 requests
// a minute and 100 a day. The budget is exact: in no stretch of time as long as the window are more
// requests admitted than the limit, however many processes, connections and retries there are. It
// can be used alone: it knows neither HTTP nor Kubernetes.
//
// # The algorithm
//
// For each user and window Redis keeps a log of the admitted requests: a sorted set with one entry
// per request, scored with its time. An entry counts until it is as old as the window; then it has
// left. A request is admitted if every window of the user has room, and is then entered in all of
// them. One execution of a Lua script looks, decides and enters, so nothing comes between.
//
// The requests of one user, with a limit of 3 a minute and 100 a day:
//
//  1. 12:00:00, the first. Neither log exists. Admitted, 2 remaining in the minute.
//     ratelimit:user_8421:60 and ratelimit:user_8421:86400 now hold {12:00:00}. They expire by
//     themselves in 61 s and 86,401 s: the window and one second.
//  2. 12:00:10. Admitted, 1 remaining. Both hold {12:00:00, 12:00:10}, and their expiry is counted
//     from now.
//  3. 12:00:20. Admitted, 0 remaining. Both hold three entries.
//  4. 12:00:30.5. The minute is full: rejected. Its oldest entry leaves at 12:01:00, in 29.5 s, so
//     RetryAfter is 30 s: rounded up to whole seconds. Nothing is written: no entry, no longer
//     life for the key. The day was not even looked at. Asking again and again does not prolong
//     the wait.
//  5. 12:01:00. The entry of 12:00:00 is now as old as the window and has left: admitted, 0
//     remaining. It is removed, the minute holds {12:00:10, 12:00:20, 12:01:00}, the day four
//     entries.
//  6. 12:01:05. The limit has meanwhile been lowered to 1 a minute. It holds at once and for the
//     same log: rejected. When the oldest entry leaves, two are still too many. Room is made when
//     entry number count + 1 - limit = 3 leaves, that of 12:01:00, so RetryAfter is 55 s. A raised
//     limit holds at once too.
//  7. 12:02:00. All three have left: the log of the minute is dropped whole and begun anew.
//     Admitted, 0 remaining.
//  8. 12:02:00.1. The connection broke before the reply to request 7 arrived, and the client sends
//     it again. Its entry is already there, so it is admitted again and charged once, although the
//     minute is full.
//  9. Nothing more. At 12:03:01 the key of the minute is gone, a day and a second after request 7
//     that of the day. An idle user takes no memory.
//
// When minute and day are both full, the answer is the minute's: the shortest window that is full
// is named. A request that the day rejects is not charged to the minute. A limit of 0 admits
// nobody: Redis is not asked, and RetryAfter is 0 because no wait would help.
//
// RetryAfter says when the limit that rejected could admit a request like this one. Another request
// of the user may take the place first, or a longer window may be full by then: the next answer
// says so.
//
// # Several budgets at once
//
// A request can be charged to several subjects together, a user and a provider that all users share,
// say: [SlidingWindow.CheckBudgets] decides on all of them, and charges all or none.
//
// # Grants
//
// A subject can be given so many requests on top of its limits, for a time: [SlidingWindow.Grant]. While a
// window is full, requests are charged to the grant instead, and to no log, until the grant is used up or
// expires. So in any stretch of time at most the limit and the grant are admitted, and when it is over
// the logs are as if there had been none. The grant is a hash beside the logs that expires by itself, and
// the same script decides. It is looked at only when a window is full or is filled by the request. It does
// not help against a limit of 0, nor against the budgets of others that a request is charged to.
//
// [SlidingWindow.Inspect] tells how a subject stands, [SlidingWindow.Reset] clears logs.
//
// # What it costs
//
// One script execution per check, for any number of windows and budgets. Checks that come while others
// are on their way share a round trip; one that comes alone is sent at once. Each has its own deadline,
// and one that waits for a connection that is dead, or a server that does not answer, holds up no
// others. Calls are repeated on purpose when no answer comes: a repeat is charged once.
//
// Memory is one entry per admitted request and window, until it leaves. With Redis 7.0 an entry takes
//
//	34 bytes in a log of 5, the key included
//	23 bytes in a log of 60
//	up to 104 bytes in a log of more than 128 entries (zset-max-listpack-entries)
//
// so a user who has used up 5 a minute and 100 a day takes under 3 kB, one who has used up 100,000
// a day about 10 MB, for a day. The time of a check grows with the logarithm of the log's length.
// One check removes at most 256 entries that have left, or drops a log that has left as a whole, so
// that a long log never holds up Redis; what is not removed yet is not counted. Set
// lazyfree-lazy-expire to yes in Redis if logs are long: a key that expires is then freed beside
// the commands and not between them.
//
// A rejected caller can be remembered in the process for a short time, and then costs Redis nothing:
// Options.DenyMemory.
//
// # When Redis is away
//
// Every check has a deadline, also while it connects. A Redis that is down, frozen or out of memory
// is an error, and so is a key that holds something else. After a few failures in a row the checks
// that follow fail at once, with ErrCircuitOpen, and one at a time tries again: nobody waits for a
// Redis that does not answer. What heals does so by itself. A check that ended with an error may or
// may not have been charged if Redis had received it; it is never charged in one window alone.
//
// [Local] keeps budgets in the memory of the process meanwhile.
//
// # Which clock counts
//
// That of Redis. The clocks of the processes that ask do not matter, and they need not agree. If
// the clock of Redis is stepped back, or a failover leads to a server that is behind, entries are
// waited for until that clock has caught up: RetryAfter may then be longer than the window, and
// nothing is forgiven. If it is stepped forward, entries leave that much earlier.
//
// # What it needs from Redis
//
// One Redis, Sentinels or a Redis Cluster; see [NewClient]. The log is only as durable as Redis.
// After a restart without persistence, or for the last moments before a failover, budgets begin anew.
// Set maxmemory-policy to noeviction: an evicted log is a budget that begins anew, while a Redis that
// is out of memory is an error. The account needs the keys ratelimit:* and *:ratelimit:* and the
// commands EVALSHA, EVAL, TIME, ZCARD, ZRANGE, ZSCORE, ZCOUNT, UNLINK, ZREMRANGEBYRANK,
// ZREMRANGEBYSCORE, ZADD, EXPIRE, PEXPIRE, HMGET, HLEN, HSET and HEXISTS, in a Cluster ZREM, HDEL and CLUSTER
// SLOTS too.
//
// In a Redis Cluster all logs of a subject are in one slot ([Subject.ClusterKey]). Those of different
// subjects are not, and no script sees two of them: a request that is charged to several budgets is
// decided in two phases. Each budget first gives a reservation, which counts like a charge and leaves
// by itself after twice the timeout and a second; when all have given one, all become charges, and
// the request is admitted. If one is full the reservations before it are taken back. Reservations keep
// others waiting, up to their timeout, and are no reason to reject anybody. No limit is ever exceeded so, and what a process leaves behind that ends in between is given back when it lapses.
// One thing can remain: if it ends while the charges are on their way to different servers, one of
// them may be made, of a request that was never answered. That takes three round trips.
//
// # Looking at a user and letting them through
//
// The name of the key is in the documentation of [Subject.Key].
//
//	$ redis-cli ZRANGE ratelimit:user_8421:60 0 -1 WITHSCORES
//	1) "\x8f\x1c\x02\xd7a"
//	2) "1796040010000000"
//	3) "\x8f\x1c\x02\xd7b"
//	4) "1796040020250000"
//
// Each request is two lines, oldest first: its member, which means nothing beyond being unique, and
// the time of its admission in microseconds since 1970.
//
//	$ score=1796040010000000; date -u -d @$((score/1000000))
//	Mon Nov 30 12:00:10 UTC 2026
//
// Entries older than the window may still be listed; they do not count. The user is let through
// again, with a whole new budget in this window, by
//
//	$ redis-cli DEL ratelimit:user_8421:60
package limiter
