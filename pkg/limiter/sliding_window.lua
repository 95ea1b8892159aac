-- An exact sliding-window log over one or more windows of one subject, in one execution.
--
-- Each window is a sorted set: one member per admitted request, its score the time of admission
-- in microseconds since the epoch. An entry counts while it is younger than the window: it has
-- left when score <= now - window. A request is admitted when every window has room, and is then
-- charged to all of them; otherwise it is charged to none, and nothing is written at all.
--
-- KEYS[i]        the sorted set of window i; the shortest window comes first.
-- ARGV[1]        the member for this request. The caller makes one per request and repeats it
--                when it repeats the call: a member that is already there is admitted again
--                and charged once. '' only looks: the reply is the same, nothing is charged.
-- ARGV[2i]       the limit of window i in requests, at least 1.
-- ARGV[2i + 1]   how long key i lives after an admission, in whole seconds, at least 2: the length
--                of window i and one second more.
-- ARGV[2n + 2]   of n windows; optional: the time in microseconds since the epoch. Absent or '' is
--                the server's own (TIME), so that the callers' clocks do not matter. Only tests
--                give a time.
-- ARGV[2n + 3]   optional: a lease in microseconds. The charge is then a reservation, which leaves
--                by itself that much later (or with the window, if that is sooner), until
--                settle.lua turns it into a charge or takes it back.
--
-- Reply when admitted:  {0, remaining of window 1, remaining of window 2, ...}
-- Reply when rejected:  {i, wait}: i is the first window that is full (later ones were not
--                       looked at), wait the microseconds until it has room again.

local call = redis.call
local TRIM = 256 -- entries removed by one call at the most: about 0.3 ms of the server's time

local member = ARGV[1]
local now = tonumber(ARGV[2 * #KEYS + 2])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

-- First only look, so that a rejection has written nothing.
local reply, cards, stales = {0}, {}, {}
local repeated = false
for i = 1, #KEYS do
  local key, limit = KEYS[i], tonumber(ARGV[2 * i])
  local horizon = now - (ARGV[2 * i + 1] - 1) * 1000000
  local card = call('ZCARD', key)
  local stale = 0
  if card >= limit then
    -- There is room exactly when the limit-th newest entry has left. While it has not, it is the
    -- one to wait for, also when the limit was lowered below the count.
    local rank = card == limit and '0' or card - limit -- a string is cheaper to pass
    local entry = call('ZRANGE', key, rank, rank, 'WITHSCORES')
    local wait = entry[2] - horizon
    if wait > 0 then
      repeated = repeated or call('ZSCORE', key, member)
      if not repeated then
        return {i, wait}
      end
    end
  end
  if card > 0 then
    stale = call('ZCOUNT', key, '-inf', horizon)
  end
  cards[i], stales[i] = card, stale
  reply[i + 1] = math.max(limit - (card - stale), 0)
end
if repeated or member == '' then
  return reply
end

-- Every window has room: charge them all. Only an admission moves the expiry.
local lease = ARGV[2 * #KEYS + 3]
local score = string.format('%.0f', now)
for i = 1, #KEYS do
  local key, life, stale = KEYS[i], ARGV[2 * i + 1], stales[i]
  if stale > 0 then
    if stale == cards[i] then
      call('UNLINK', key)
    else
      call('ZREMRANGEBYRANK', key, 0, math.min(stale, TRIM) - 1)
    end
  end
  local held
  if lease then
    -- As old as an entry that leaves when the lease ends.
    local window = (life - 1) * 1000000
    held = math.min(lease, window)
    score = string.format('%.0f', now - window + held)
    held = math.ceil(held / 1000000) + 1
  end
  reply[i + 1] = reply[i + 1] - call('ZADD', key, 'NX', score, member)
  if not held then
    call('EXPIRE', key, life)
  elseif stale == cards[i] then
    call('EXPIRE', key, held)
  else
    call('EXPIRE', key, held, 'GT') -- what is in it already stays as long as it would
  end
end
return reply
