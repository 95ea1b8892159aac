-- Gives a subject so many requests on top of its limits for a time, or takes what it has away.
--
-- A grant is a hash that expires by itself. Its fields 'granted' (requests) and 'expires' (microseconds
-- since the epoch) say how much and until when; 'request' and 'instead' are what a repeat of this call
-- needs. Every other field is a request that sliding_window.lua has charged to it: the member, and the
-- time in microseconds. Members have 5 or 8 bytes and no field of the grant's own has.
--
-- KEYS[1]   the hash.
-- ARGV[1]   the requests to grant, at least 1; 0 takes the grant away.
-- ARGV[2]   for how long, in whole seconds.
-- ARGV[3]   a name for this call, which is the same when it is repeated.
-- ARGV[4]   optional, of no meaning here.
-- ARGV[5]   optional: not '' when the same call may have been executed before.
-- ARGV[6]   optional: the time in microseconds since the epoch, else the server's.
--
-- Reply: {when the grant expires, or 0} and, if there was one before: {..., requests, used, expires}.

local call, format = redis.call, string.format
local OWN = 4 -- fields that are not requests
local REMEMBERED = 60 -- for so many seconds it is known what was taken away, which is longer than calls are repeated

local key, request = KEYS[1], ARGV[3]
local now = tonumber(ARGV[6])
if not now then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end

local had = call('HMGET', key, 'granted', 'expires', 'request', 'instead')
if (ARGV[5] or '') ~= '' and had[3] == request then
  local reply = {(had[2] or 0) + 0}
  for number in string.gmatch(had[4], '%d+') do
    reply[#reply + 1] = number + 0
  end
  return reply
end

local reply = {0}
if had[1] and had[2] + 0 > now then
  reply = {0, had[1] + 0, call('HLEN', key) - OWN, had[2] + 0}
end
call('UNLINK', key)
local instead = ''
for i = 2, #reply do
  instead = instead .. format('%d ', reply[i])
end
if ARGV[1] == '0' then
  if #reply > 1 then -- for a repeat; no field 'granted', so that it grants nothing
    call('HSET', key, 'request', request, 'instead', instead)
    call('EXPIRE', key, REMEMBERED)
  end
  return reply
end
local expires = now + ARGV[2] * 1000000
reply[1] = expires
call('HSET', key, 'granted', ARGV[1], 'expires', format('%d', expires), 'request', request, 'instead', instead)
call('PEXPIRE', key, format('%d', ARGV[2] * 1000))
return reply
