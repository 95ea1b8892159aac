-- Copyright The Tierlimit Authors.
-- SPDX-License-Identifier: Apache-2.0

-- Two actions for HAProxy 2.6 or later, built with Lua:
--
--   http-request  lua.tierlimit          asks for a check, and answers the client unless it is admitted
--   http-response lua.tierlimit_headers  tells an admitted client what is left of its budget
--
-- The first takes the query of the check, such as "tier=free", from the variable txn.tierlimit_query. It leaves
-- "admitted" in the variable txn.tierlimit, or "unreachable" if the check gave no answer. It leaves nothing there if it
-- fails itself: HAProxy goes on with a request whose action failed, so that haproxy.cfg has to refuse what is
-- not known to be admitted.

-- The listener of haproxy.cfg that leads to the check.
local check = "http://127.0.0.1:8410/check?"

-- In milliseconds; more than the listener's own timeouts together. core.httpclient asks up to four times when
-- it gives up before the listener does, and each of them could be charged.
local patience = 10000

-- How many header lines a client may send. HAProxy accepts 100 (tune.http.maxhdr), but core.httpclient of HAProxy 2.6
-- brings the whole process down when it is given about as many.
local most = 80

-- What an admitted client is told. Where the application has a header of the same name, the check's counts.
local told = {
	"ratelimit", "ratelimit-policy", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-window",
	"x-tierlimit-tier", "x-tierlimit-unknown-tier", "x-tierlimit-enforcement",
}

-- Headers of one connection, in either direction, or of a message whose body is not passed on.
local private = {
	["connection"] = true, ["keep-alive"] = true, ["proxy-connection"] = true, ["te"] = true, ["trailer"] = true,
	["transfer-encoding"] = true, ["upgrade"] = true, ["content-length"] = true, ["expect"] = true, ["host"] = true,
}

-- Headers that only a proxy may set: what a client sends in them is dropped.
local function reserved(name)
	return name == "x-real-ip" or name == "forwarded" or name:find("^x%-forwarded%-") or
		name:find("^x%-original%-") or name:find("^x%-tierlimit%-")
end

-- question returns the headers that the check is asked with, or nothing if they are too many.
local function question(txn)
	local headers, count = {}, 0
	for name, values in pairs(txn.http:req_get_headers()) do
		count = count + #values + 1 -- the first is values[0]
		if count > most then return nil end
		if not private[name] and not reserved(name) then headers[name] = values end
	end
	headers["x-real-ip"] = { txn.sf:src() }
	headers["x-forwarded-for"] = { txn.sf:src() }
	headers["x-forwarded-method"] = { txn.sf:method() }
	headers["x-forwarded-host"] = { txn.sf:req_hdr("host") }
	headers["x-forwarded-uri"] = { txn.sf:pathq() }
	headers["x-forwarded-proto"] = { txn.f:ssl_fc() == 1 and "https" or "http" }
	return headers
end

local function too_many(txn)
	local reply = txn:reply()
	reply:set_status(431)
	reply:add_header("content-type", "application/problem+json")
	reply:set_body('{"type":"about:blank","title":"Request Header Fields Too Large","status":431,"detail":"Send at most ' ..
		most .. ' header lines."}')
	return reply
end

-- refusal returns the check's answer, to be given to the client as it is.
local function refusal(txn, answer)
	local reply = txn:reply()
	reply:set_status(answer.status, answer.reason)
	for name, values in pairs(answer.headers) do
		if not private[name] then
			for i = 0, #values do reply:add_header(name, values[i]) end
		end
	end
	reply:set_body(answer.body or "")
	return reply
end

-- remember keeps what the client is told once the application has answered.
local function remember(txn, answer)
	local kept = {}
	for _, name in ipairs(told) do
		kept[name] = answer.headers[name] and answer.headers[name][0]
	end
	txn:set_priv(kept)
end

core.register_action("tierlimit", { "http-req" }, function(txn)
	txn:set_var("txn.tierlimit", "failed")
	local url, headers = check .. txn:get_var("txn.tierlimit_query"), question(txn)
	if not headers then txn:done(too_many(txn)) end
	local asked, answer = pcall(function()
		return core.httpclient():get{ url = url, headers = headers, timeout = patience }
	end)
	if not asked then
		core.log(core.err, "tierlimit: the check cannot be asked: " .. tostring(answer))
	elseif not answer.status or answer.headers["x-tierlimit-unreachable"] then
		txn:set_var("txn.tierlimit", "unreachable")
	elseif answer.status == 200 then
		remember(txn, answer)
		txn:set_var("txn.tierlimit", "admitted")
	else
		txn:done(refusal(txn, answer))
	end
end)

core.register_action("tierlimit_headers", { "http-res" }, function(txn)
	for name, value in pairs(txn:get_priv() or {}) do
		txn.http:res_set_header(name, value)
	end
end)
