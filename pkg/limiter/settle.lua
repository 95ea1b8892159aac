-- Turns a reservation by sliding_window.lua into a charge, or takes it back, in all windows of one
-- subject.
--
-- KEYS[i]       the sorted set of window i of n.
-- KEYS[n + 1]   the hash with the subject's grant. What was charged to it needs no reservation, and
--               only has to be taken back.
-- ARGV[1]       the member, without the '?' of the reservation.
-- ARGV[2]       'charge' or 'release'.
-- ARGV[i + 2]   how long key i lives after a charge, in whole seconds: the length of window i and
--               one second more.
-- ARGV[n + 3]   optional, of no meaning here, as the next one.
-- ARGV[n + 5]   optional: the time in microseconds since the epoch, else the server's.
--
-- Reply: 1 when done. 0 when there is no such reservation any more, in one window at least; then
-- nothing was charged. Both may be repeated.

local call = redis.call
local member = ARGV[1]
local reserved = '?' .. member
local n = #KEYS - 1
local grant = KEYS[n + 1]

if ARGV[2] == 'release' then
  for i = 1, n do
    call('ZREM', KEYS[i], member, reserved)
  end
  call('HDEL', grant, member)
  return 1
end

local now = tonumber(ARGV[n + 5])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
if call('HEXISTS', grant, member) == 1 then
  return 1
end
for i = 1, n do
  local score = call('ZSCORE', KEYS[i], reserved) or call('ZSCORE', KEYS[i], member)
  if not score or score + 0 <= now - (ARGV[i + 2] - 1) * 1000000 then
    return 0
  end
end
local score = string.format('%d', now)
for i = 1, n do
  if call('ZREM', KEYS[i], reserved) == 1 then
    call('ZADD', KEYS[i], score, member)
    call('EXPIRE', KEYS[i], ARGV[i + 2])
  end
end
return 1
