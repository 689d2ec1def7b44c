-- FIFO queue of waiters, and the commands of the script.

local AHEAD = 1e8 -- seconds

local function lease(n, permit, seconds)
  redis.call('ZADD', held_key(n), LEASE_CLOCK + seconds, permit)
  keep(held_key(n))
end

local function grant(sandbox, permit, request, seconds)
  lease(sandbox.n, permit, seconds)
  sandbox.in_use = sandbox.in_use + 1
  if request.exclusive then
    redis.call('HSET', state_key(sandbox.n), 'exclusive', permit)
    sandbox.exclusive = true
  end
  if sandbox.half_open then
    redis.call('HSET', state_key(sandbox.n), 'probe', permit)
    sandbox.probing = true
  end
  return sandbox
end

-- Only the first exclusive waiter reserves a sandbox: one is drained at a time.
local function serve_exclusive(permit, request, seconds)
  local sandbox = least_used(request)
  if sandbox and sandbox.in_use == 0 then return grant(sandbox, permit, request, seconds) end
  if sandbox and not reservation then
    reservation, sandbox.reserved = true, true
  end
end

local function serve(permit, request, seconds)
  if request.exclusive then return serve_exclusive(permit, request, seconds) end
  local sandbox = most_free(request)
  return sandbox and grant(sandbox, permit, request, seconds)
end

-- The queue

local function parse_request(text)
  local wish, n = text:sub(2, 2), tonumber(text:sub(3))
  return {
    exclusive = text:sub(1, 1) == 'x',
    avoid = wish == '-' and n,
    only = wish == '=' and n,
  }
end

-- Merged commands come at the same time; who comes first is still the first.
local arrivals = 0

-- A waiter that was dropped as dead returns to its old position. Those for one sandbox go before all
-- others: there are few, and what they find is wanted early.
local function join(waiter, ticket, request)
  empty = false
  local arrival = (parse_request(request).only and NOW - AHEAD or NOW) + arrivals * 1e-6
  arrivals = arrivals + 1
  redis.call('ZADD', QUEUE, 'NX', ticket == '' and arrival or ticket, waiter)
  redis.call('HSET', WISHES, waiter, request)
  redis.call('ZADD', HEARD, LEASE_CLOCK, waiter)
  for _, key in ipairs({ QUEUE, WISHES, HEARD }) do keep(key) end
end

local function leave(waiter)
  redis.call('ZREM', QUEUE, waiter)
  redis.call('HDEL', WISHES, waiter)
  redis.call('ZREM', HEARD, waiter)
  empty, kept = nil, {}
end

local function wake(waiter)
  redis.call('LPUSH', WAKE .. waiter, 1)
  redis.call('EXPIRE', WAKE .. waiter, math.ceil(SETTINGS.lease_ttl))
end

local expired = false

local function expire()
  if expired then return end -- the lease clock stands still during a script
  expired = true
  for n = 1, COUNT do redis.call('ZREMRANGEBYSCORE', held_key(n), '-inf', LEASE_CLOCK) end
  local oldest = LEASE_CLOCK - SETTINGS.waiter_ttl
  local dead = redis.call('ZRANGEBYSCORE', HEARD, '-inf', oldest)
  for _, waiter in ipairs(dead) do leave(waiter) end
end

-- Offers free sandboxes to the waiters in order of arrival.
local function serve_queue()
  sandboxes = nil
  if queue_is_empty() then return end
  expire()
  read_sandboxes()
  local passed = 0
  while room_left() do
    local waiter = redis.call('ZRANGE', QUEUE, passed, passed)[1]
    if not waiter then return end
    -- A short lease at first; the waiter extends it when it collects the permit.
    if serve(waiter, parse_request(redis.call('HGET', WISHES, waiter)), SETTINGS.waiter_ttl) then
      leave(waiter)
      wake(waiter)
    else
      passed = passed + 1
    end
  end
end

-- No event announces the end of a pause or an ejection: the first waiter polls for it.
local function poll_delay(waiter)
  local seconds = SETTINGS.ask_every
  if redis.call('ZRANK', QUEUE, waiter) ~= 0 then return seconds end
  for n = 1, COUNT do
    local opens_in = read_sandbox(n).opens_at - NOW
    if opens_in > 0 then seconds = math.min(seconds, opens_in) end
  end
  return math.max(seconds, MIN_POLL)
end

-- Commands

local commands = {}

local function granted_sandbox(permit)
  for n = 1, COUNT do
    if holds(n, permit) then return n end
  end
end

local function collect(permit, n)
  lease(n, permit, SETTINGS.lease_ttl)
  redis.call('DEL', WAKE .. permit)
  return { n }
end

-- ask NAME TICKET REQUEST -> {sandbox}, or {0, ticket, seconds after which to ask again}. Idempotent;
-- it is also the waiter's heartbeat, and collects a permit that was granted meanwhile.
function commands.ask(name, ticket, request)
  local n = granted_sandbox(name)
  if n then return collect(name, n) end
  expire()
  if queue_is_empty() then -- the common case: skip the queue
    if not sandboxes then read_sandboxes() end
    local sandbox = serve(name, parse_request(request), SETTINGS.lease_ttl)
    if sandbox then
      if ticket ~= '' then redis.call('DEL', WAKE .. name) end
      return { sandbox.n }
    end
  end
  join(name, ticket, request)
  serve_queue()
  sandboxes = nil -- they may be reserved for a waiter
  n = granted_sandbox(name)
  if n then return collect(name, n) end
  return { 0, redis.call('ZSCORE', QUEUE, name), tostring(poll_delay(name)) }
end

-- renew (SANDBOX PERMIT)... -> the permits that have expired.
function commands.renew(...)
  local held, lost = { ... }, {}
  for i = 1, #held, 2 do
    local n, permit = held[i], held[i + 1]
    if holds(n, permit) then
      lease(n, permit, SETTINGS.lease_ttl)
    else
      table.insert(lost, permit)
    end
  end
  return lost
end

-- release SANDBOX PERMIT OUTCOME RETRY_AFTER. Idempotent; no effect after the permit expired.
function commands.release(n, permit, outcome, retry_after)
  local in_use = redis.call('ZCARD', held_key(n))
  kept[held_key(n)] = nil
  if redis.call('ZREM', held_key(n), permit) == 1 and reports[outcome] then
    reports[outcome](n, permit, in_use, tonumber(retry_after))
    keep(state_key(n))
  end
  serve_queue()
end

-- withdraw NAME: remove a waiter from the queue, and release its permit if one was granted.
function commands.withdraw(name)
  leave(name)
  for n = 1, COUNT do redis.call('ZREM', held_key(n), name) end
  redis.call('DEL', WAKE .. name)
  serve_queue()
end

-- state -> per sandbox: limit, in use, waiting, ejected for, paused for.
function commands.state()
  local found = {}
  local waiting = redis.call('ZCOUNT', HEARD, '(' .. LEASE_CLOCK - SETTINGS.waiter_ttl, '+inf')
  for n = 1, COUNT do
    local in_use = redis.call('ZCOUNT', held_key(n), '(' .. LEASE_CLOCK, '+inf')
    local ejected_until, paused_until = unpack(redis.call('HMGET', state_key(n), 'ejected_until', 'paused_until'))
    local ejected_for = math.max(0, (tonumber(ejected_until) or 0) - NOW)
    local paused_for = math.max(0, (tonumber(paused_until) or 0) - NOW)
    for _, value in ipairs({ read_limit(n), in_use, waiting, ejected_for, paused_for }) do
      table.insert(found, tostring(value))
    end
  end
  return found
end

local FIRST = 4

local function conclude() tick() end
