-- A variant of pkg/limiter/sliding_window.lua that was not taken: it counts the stale entries of each
-- window before it decides, and trims them by their number. KEYS, ARGV[1] to ARGV[2n + 1] and the
-- reply are the same; a call is never repeated, and there are no grants.
local call = redis.call
local TRIM = 256

local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local reply, cards, stales = {0}, {}, {}
for i = 1, #KEYS - 1 do
  local key, limit = KEYS[i], tonumber(ARGV[2 * i])
  local horizon = now - (ARGV[2 * i + 1] - 1) * 1000000
  local card = call('ZCARD', key)
  local stale = card > 0 and call('ZCOUNT', key, '-inf', horizon) or 0
  if card - stale >= limit then
    local rank = card - limit
    return {i, call('ZRANGE', key, rank, rank, 'WITHSCORES')[2] - horizon}
  end
  cards[i], stales[i] = card, stale
  reply[i + 1] = limit - (card - stale)
end

local score = string.format('%.0f', now)
for i = 1, #KEYS - 1 do
  local key, stale = KEYS[i], stales[i]
  if stale > 0 and stale == cards[i] then
    call('UNLINK', key)
  elseif stale > 0 then
    call('ZREMRANGEBYRANK', key, 0, math.min(stale, TRIM) - 1)
  end
  reply[i + 1] = reply[i + 1] - call('ZADD', key, 'NX', score, ARGV[1])
  call('EXPIRE', key, ARGV[2 * i + 1])
end
return reply
