-- Tells the state of one subject, and writes nothing.
--
-- KEYS[i]        the sorted set of window i of n.
-- KEYS[n + 1]    the hash with the subject's grant (grant.lua).
-- ARGV[1]        how many of the last requests of each window to tell, 0 to 1000.
-- ARGV[2i]       the limit of window i in requests.
-- ARGV[2i + 1]   the length of window i in seconds, and one more.
-- ARGV[2n + 2]   optional, of no meaning here, as the next one.
-- ARGV[2n + 4]   optional: the time in microseconds since the epoch, else the server's.
--
-- Reply: {the time, {requests granted, used, expires} or {},
--         {used, next slot, empty, time of the newest request, of the one before, ...} of each window}
--
-- Next slot is when the window admits one more than now: for a full one when it has room again, else
-- when its oldest entry leaves; empty is when its newest leaves. Both are 0 when there is no such moment.
-- All times are microseconds since the epoch.

local call, format = redis.call, string.format
local n = #KEYS - 1
local now = tonumber(ARGV[2 * n + 4])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

local reply = {now, {}}
local grant = KEYS[n + 1]
local g = call('HMGET', grant, 'granted', 'expires')
if g[1] and g[2] + 0 > now then
  reply[2] = {g[1] + 0, call('HLEN', grant) - 4, g[2] + 0}
end

for i = 1, n do
  local key, limit, window = KEYS[i], ARGV[2 * i] + 0, (ARGV[2 * i + 1] - 1) * 1000000
  local stale = call('ZCOUNT', key, '-inf', format('%d', now - window))
  local used = call('ZCARD', key) - stale
  local state = {used, 0, 0}
  if used > 0 and limit > 0 then
    local rank = format('%d', stale + math.max(used - limit, 0))
    state[2] = call('ZRANGE', key, rank, rank, 'WITHSCORES')[2] + window
  end
  if used > 0 then
    state[3] = call('ZRANGE', key, '-1', '-1', 'WITHSCORES')[2] + window
    local last = ARGV[1] + 0
    if last > 0 then
      local newest = call('ZRANGE', key, '0', format('%d', math.min(last, used) - 1), 'REV', 'WITHSCORES')
      for j = 1, #newest, 2 do
        if #newest[j] % 3 ~= 0 then -- else a reservation (sliding_window.lua), which has no time yet
          state[#state + 1] = newest[j + 1] + 0
        end
      end
    end
  end
  reply[i + 2] = state
end
return reply
