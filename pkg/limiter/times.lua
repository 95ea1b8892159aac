-- Reads a piece of a log, oldest first, and writes nothing.
--
-- KEYS[1]   the sorted set.
-- ARGV[1]   from which score on, in the form of ZRANGE BYSCORE.
-- ARGV[2]   how many entries at the most.
--
-- Reply: the scores, in microseconds since the epoch, without those of reservations (sliding_window.lua),
-- and in front the score of the last entry and how many entries there were.

local entries = redis.call('ZRANGE', KEYS[1], ARGV[1], '+inf', 'BYSCORE', 'LIMIT', 0, ARGV[2], 'WITHSCORES')
local reply = {0, #entries / 2}
for i = 1, #entries, 2 do
  reply[1] = entries[i + 1] + 0
  if #entries[i] % 3 ~= 0 then
    reply[#reply + 1] = reply[1]
  end
end
return reply
