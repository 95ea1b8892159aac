-- An exact sliding-window log over one or more windows of one subject, in one execution.
--
-- Each window is a sorted set: one member per admitted request, its score the time of admission
-- in microseconds since the epoch. An entry counts while it is younger than the window: it has
-- left when score <= now - window. A request is admitted when every window has room, and is then
-- charged to all of them; otherwise it is charged to none, and nothing is written at all.
--
-- A subject may have a grant (grant.lua): so many requests on top of its limits, for a time. It is
-- looked at only where it matters: when a window is full, or filled by this request. A request that a
-- grant lets through is charged to it and to none of the subject's windows.
--
-- KEYS[i]        the sorted set of window i of n; the shortest window of a subject comes first.
-- KEYS[n + 1]    the hash with the grant of the first subject.
-- ARGV[1]        the member for this request. The caller makes one per request and repeats it
--                when it repeats the call: a member that is already there is admitted again
--                and charged once. '' only looks: the reply is the same, nothing is charged.
-- ARGV[2i]       the limit of window i in requests, at least 1.
-- ARGV[2i + 1]   how long key i lives after an admission, in whole seconds, at least 2: the length
--                of window i and one second more.
-- ARGV[2n + 2]   optional: how many windows, the first ones, the grant is for. Absent or '' is all.
-- ARGV[2n + 3]   optional: not '' when the same call may have been executed before.
-- ARGV[2n + 4]   optional: the time in microseconds since the epoch. Absent or '' is the server's own
--                (TIME), so that the callers' clocks do not matter. Only tests give a time.
-- ARGV[2n + 5]   optional: a lease in microseconds, where there are reservations: entries of
--                requests that are not decided yet. One leaves by itself when its lease ends (or
--                with the window, if that is sooner), until settle.lua turns it into a charge or
--                takes it back. Its member has '?' in front. A grant is charged without one, which
--                settle.lua takes back too.
-- ARGV[2n + 6]   optional: not '' to make a reservation instead of a charge.
--
-- Reply when admitted:  {0, remaining of window 1, remaining of window 2, ...}
--                       and, where there is more to come from a grant or this request came from it:
--                       {..., remaining of the grant, requests granted, 1 if charged to it else 0}
-- Reply when rejected:  {i, wait}: i is the first window that is full (later ones were not
--                       looked at), wait the microseconds until it has room again.
-- Reply when undecided: {-i, wait}: window i is full only with reservations, as far as these are
--                       among the 256 newest entries that leave within the lease.
--
-- Formats and strings are chosen for what they cost: a number that is passed to a command is
-- printed with 17 digits, which takes longer than '%d' and longer than many a command.

local call, format = redis.call, string.format
local TRIM = 256 -- entries removed by one call at the most: about 0.3 ms of the server's time

local n = #KEYS - 1
local member, grant = ARGV[1], KEYS[n + 1]
local own, again, now = ARGV[2 * n + 2], (ARGV[2 * n + 3] or '') ~= '', tonumber(ARGV[2 * n + 4])
own = (own or '') ~= '' and own + 0 or n
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

local lease = ARGV[2 * n + 5]
local reserve = lease and member ~= '' and (ARGV[2 * n + 6] or '') ~= ''
if reserve then
  member = '?' .. member
end

-- undecided returns whether a full window has room but for reservations. They leave within a lease.
local undecided = lease and function(key, limit, card, horizon)
  local until_, from = format('%d', horizon + lease), format('(%d', horizon)
  local reserved = 0
  for _, m in ipairs(call('ZRANGE', key, until_, from, 'BYSCORE', 'REV', 'LIMIT', 0, TRIM)) do
    if #m % 3 == 0 then -- 5 or 8 bytes and a '?'
      reserved = reserved + 1
    end
  end
  return reserved > 0 and card - call('ZCOUNT', key, '-inf', format('%d', horizon)) - reserved < limit
end

-- First only look, so that a rejection has written nothing.
local cards = {}
local settled = member == '' -- nothing to charge
local left, granted -- of the grant, once it has been looked for
local extra = again and own > 0 and call('HEXISTS', grant, ARGV[1]) == 1 -- it is charged to the grant
settled = settled or extra
for i = 1, n do
  local key, limit = KEYS[i], ARGV[2 * i] + 0
  local card = call('ZCARD', key)
  if not left and (extra or i <= own and card >= limit - 1) then
    left, granted = 0, 0
    local fields = call('HLEN', grant)
    if fields > 0 then -- four of its own, and one for each request that was charged to it
      local g = call('HMGET', grant, 'granted', 'expires')
      if g[1] and g[2] + 0 > now then
        granted = g[1] + 0
        left = math.max(granted + 4 - fields, 0)
      end
    end
  end
  if card >= limit and not (extra and i <= own) then
    -- There is room exactly when the limit-th newest entry has left. While it has not, it is the
    -- one to wait for, also when the limit was lowered below the count.
    local rank = card == limit and '0' or card - limit -- a string is cheaper to pass
    local entry = call('ZRANGE', key, rank, rank, 'WITHSCORES')
    local wait = entry[2] - now + (ARGV[2 * i + 1] - 1) * 1000000
    if wait > 0 then
      if not settled then
        settled = again and call('ZSCORE', key, member)
      end
      if not settled or member == '' then
        if lease and undecided(key, limit, card, entry[2] - wait) then
          return {-i, wait}
        end
        extra = extra or i <= own and left > 0
        if not (extra and i <= own) then
          return {i, wait}
        end
      end
    end
  end
  cards[i] = card
end

-- Every window has room, or the grant stands in for the subject's own: charge them all. Only an
-- admission moves the expiry.
local score = format('%d', now)
local reply, least = {0}, member == '' and 2 or 1 -- what is left of a window that this request fills, plus one
if extra and not settled then
  call('HSET', grant, ARGV[1], score)
  left = left - 1
end
for i = 1, n do
  local key, life, card = KEYS[i], ARGV[2 * i + 1], cards[i]
  local horizon = format('%d', now - (life - 1) * 1000000)
  local charge = not settled and not (extra and i <= own)
  local stale = 0
  if card > 0 and (not charge or card > TRIM) then
    stale = call('ZCOUNT', key, '-inf', horizon)
  end
  local added = 0
  if charge then
    if stale > 0 and stale == card then
      call('UNLINK', key)
    end
    local held
    if reserve then
      -- As old as an entry that leaves when the lease ends.
      local window = (life - 1) * 1000000
      held = math.min(lease, window)
      score = format('%d', now - window + held)
      held = math.ceil(held / 1000000) + 1
    end
    -- Before anything is removed: a server that is out of memory refuses only the first write.
    added = call('ZADD', key, 'NX', score, member)
    if card > TRIM then
      if stale > 0 and stale < card then
        call('ZREMRANGEBYRANK', key, 0, math.min(stale, TRIM) - 1)
      end
    elseif card > 0 then
      stale = call('ZREMRANGEBYSCORE', key, '-inf', horizon)
    end
    if not held then
      call('EXPIRE', key, life)
    elseif stale == card then
      call('EXPIRE', key, held)
    else
      call('EXPIRE', key, held, 'GT') -- what is in it already stays as long as it would
    end
  end
  local remaining = ARGV[2 * i] - card + stale - added
  reply[i + 1] = remaining > 0 and remaining or 0
  if i <= own and remaining < least then
    least = 0
  end
end
if extra or least == 0 and left > 0 then
  reply[n + 2], reply[n + 3], reply[n + 4] = left, granted, extra and 1 or 0
end
return reply
