-- What wrk asks: the paths of a file, one after the other, and all over again.
-- Arguments: the file, and "close" for a new connection for each request.
local requests = {}
local next = 0

function init(args)
  local headers = nil
  if args[2] == "close" then
    headers = {Connection = "close"}
  end
  for path in io.lines(args[1]) do
    requests[#requests + 1] = wrk.format("GET", path, headers)
  end
end

function request()
  next = next % #requests + 1
  return requests[next]
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '\nresult {"requests":%d,"duration_us":%d,"p50_us":%d,"p99_us":%d,"bad_status":%d,"socket_errors":%d}\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), errors.status,
    errors.connect + errors.read + errors.write + errors.timeout))
end
