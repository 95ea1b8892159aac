-- The usual sliding-window log of one window: trim, count, add, expire. When full, the oldest entry
-- says how long to wait: without that it could not answer Retry-After as the others do.
-- KEYS[1] the sorted set. ARGV: now and window in microseconds, limit, member, seconds to live.
-- Replies {1, remaining}, or {0, microseconds to wait}.
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', ARGV[1] - ARGV[2])
local count = redis.call('ZCARD', KEYS[1])
if count >= tonumber(ARGV[3]) then
  local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
  return {0, oldest[2] + ARGV[2] - ARGV[1]}
end
redis.call('ZADD', KEYS[1], ARGV[1], ARGV[4])
redis.call('EXPIRE', KEYS[1], ARGV[5])
return {1, ARGV[3] - count - 1}
