-- Clears logs of one subject.
--
-- KEYS[i]       the sorted set of window i of n.
-- ARGV[i]       the length of window i in seconds, and one more.
-- ARGV[n + 1]   optional, of no meaning here, as the next one.
-- ARGV[n + 3]   optional: the time in microseconds since the epoch, else the server's.
--
-- Reply: how many requests each window counted.

local call, format = redis.call, string.format
local now = tonumber(ARGV[#KEYS + 3])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local reply = {}
for i = 1, #KEYS do
  local window = (ARGV[i] - 1) * 1000000
  reply[i] = call('ZCOUNT', KEYS[i], format('(%d', now - window), '+inf')
  call('UNLINK', KEYS[i])
end
return reply
