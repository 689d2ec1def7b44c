-- Admission control for a pool of sandboxes: an adaptive concurrency limit (AIMD) and a circuit
-- breaker per sandbox. sandboxes.lua and queue.lua are one script, so every decision is atomic.
--
-- KEYS  queue, wishes, heard, clock, then two of each sandbox: held, place
-- ARGV  command, settings (JSON), prefix of the wake keys, then the command's arguments; or merged commands
--
--   queue   sorted set: waiter -> ticket, its time of arrival
--   wishes  hash: waiter -> its request: 'x' (exclusive) or '-', then '-' and the number of the
--           sandbox that it avoids, or 0, or '=' and the number of the only one that it may use
--   heard   sorted set: waiter -> time of its last heartbeat, by the lease clock
--   clock   hash: the lease clock, and the time of the last command
--   held    sorted set: permit -> time of its expiry, by the lease clock
--   place   hash, state of the sandbox: limit, decreased_at, paused_until; broken (failures in a
--           row), ejections (in a row), ejected_until, probe (a permit); exclusive (a permit)
--
-- All times are seconds. A waiter and its permit have the same name. Names are never reused, so a
-- probe or exclusive field that names a released permit has no effect.

local QUEUE, WISHES, HEARD, CLOCK = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local COMMAND, SETTINGS, WAKE = ARGV[1], cjson.decode(ARGV[2]), ARGV[3]
local COUNT = (#KEYS - 4) / 2
local EXPIRES_AFTER = 24 * 3600 -- keys of unused pools
local LONGEST_PAUSE = 60 -- seconds; no longer Retry-After is honoured
local MIN_POLL = 0.01 -- BLPOP reads 0 as "no timeout"

local function held_key(n) return KEYS[3 + 2 * n] end
local function state_key(n) return KEYS[4 + 2 * n] end

local kept = {} -- what exists since; a key that may be empty now is left out

local function keep(key)
  if kept[key] then return end
  kept[key] = redis.call('EXPIRE', key, EXPIRES_AFTER) == 1
end

local empty -- whether nobody waits; nil if that is not known

local function queue_is_empty()
  if empty == nil then empty = redis.call('EXISTS', QUEUE) == 0 end
  return empty
end

-- Clocks

local function read_time()
  local time = redis.call('TIME')
  return time[1] + time[2] / 1e6
end

local NOW = read_time()

-- The lease clock advances by at most half a lease between two commands. Live holders renew more
-- often than that, so a longer silence means that Redis was down, and permits must not expire.
local function read_lease_clock()
  local stored = redis.call('HMGET', CLOCK, 'time', 'heard')
  local silence = NOW - (tonumber(stored[2]) or NOW)
  local time = tonumber(stored[1]) or 0
  return time + math.max(0, math.min(silence, SETTINGS.lease_ttl / 2))
end

local LEASE_CLOCK = read_lease_clock()

local function tick()
  redis.call('HSET', CLOCK, 'time', LEASE_CLOCK, 'heard', NOW)
  keep(CLOCK)
end

-- Load balancing: free slots of each sandbox, and the choice of a sandbox for a request.

local function holds(n, permit)
  return permit and redis.call('ZSCORE', held_key(n), permit) ~= false
end

local function clamp(limit)
  return math.max(SETTINGS.minimum, math.min(limit, SETTINGS.max_concurrency))
end

local function read_sandbox(n)
  local fields = redis.call('HMGET', state_key(n),
    'limit', 'paused_until', 'ejected_until', 'ejections', 'probe', 'exclusive')
  return {
    n = n,
    limit = clamp(tonumber(fields[1]) or SETTINGS.initial),
    opens_at = math.max(tonumber(fields[2]) or 0, tonumber(fields[3]) or 0),
    half_open = fields[4] ~= false,
    probing = holds(n, fields[5]),
    exclusive = holds(n, fields[6]),
    in_use = redis.call('ZCARD', held_key(n)),
  }
end

local sandboxes, reservation

local function read_sandboxes()
  sandboxes, reservation = {}, false
  for n = 1, COUNT do sandboxes[n] = read_sandbox(n) end
end

local function is_open(sandbox) return sandbox.opens_at <= NOW end

-- After an ejection a sandbox is half-open: it gets a single permit, the probe.
local function size(sandbox)
  return sandbox.half_open and 1 or math.floor(sandbox.limit + 1e-9)
end

local function room(sandbox)
  if sandbox.reserved or sandbox.exclusive or not is_open(sandbox) then return 0 end
  if sandbox.half_open then return sandbox.probing and 0 or 1 end
  return size(sandbox) - sandbox.in_use
end

local function room_left()
  for _, sandbox in ipairs(sandboxes) do
    if room(sandbox) > 0 then return true end
  end
  return false
end

-- A request avoids a sandbox only while another one is open, or if it is for another one.
local function avoids(request, sandbox)
  if request.only then return request.only ~= sandbox.n end
  if request.avoid ~= sandbox.n then return false end
  for _, other in ipairs(sandboxes) do
    if other ~= sandbox and is_open(other) then return true end
  end
  return false
end

-- The sandbox with the greatest free share. The start rotates, so that ties take turns.
local function most_free(request)
  local best, best_share
  for i = 1, COUNT do
    local sandbox = sandboxes[(math.floor(NOW * 1e6) + i) % COUNT + 1]
    local share = room(sandbox) / size(sandbox)
    if share > 0 and (not best or share > best_share) and not avoids(request, sandbox) then
      best, best_share = sandbox, share
    end
  end
  return best
end

-- The sandbox to drain for an exclusive request. It gets no new permits while it is reserved, so the
-- smallest number in use never grows and reaches 0.
local function least_used(request)
  local best
  for _, sandbox in ipairs(sandboxes) do
    if is_open(sandbox) and not sandbox.reserved and not avoids(request, sandbox)
      and (not best or sandbox.in_use < best.in_use) then
      best = sandbox
    end
  end
  return best
end

-- Reported outcomes: AIMD limit, pause after Retry-After, circuit breaker (ejection).

local function number(n, field) return tonumber(redis.call('HGET', state_key(n), field)) or 0 end

local function read_limit(n)
  return clamp(tonumber(redis.call('HGET', state_key(n), 'limit')) or SETTINGS.initial)
end

-- Additive increase, only while the limit is nearly reached: an unused limit proves nothing.
local function increase(n, in_use)
  local limit = read_limit(n)
  if in_use >= limit * SETTINGS.busy_share or not queue_is_empty() then
    redis.call('HSET', state_key(n), 'limit', clamp(limit + 1 / limit))
  end
end

-- Multiplicative decrease, once per window: reports of one burst have the same cause.
local function decrease(n)
  if math.abs(NOW - number(n, 'decreased_at')) < SETTINGS.decrease_window then return end
  local limit = clamp(read_limit(n) * SETTINGS.decrease_factor)
  redis.call('HSET', state_key(n), 'limit', limit, 'decreased_at', NOW)
end

local function pause(n, seconds)
  local before = tonumber(redis.call('HGET', state_key(n), 'paused_until')) or 0
  local paused_until = math.max(before, NOW + math.min(seconds, LONGEST_PAUSE))
  redis.call('HSET', state_key(n), 'paused_until', paused_until)
end

local function eject(n)
  local before = number(n, 'ejections')
  local seconds = math.min(SETTINGS.eject_max, SETTINGS.eject_base * 2 ^ before)
  redis.call('HSET', state_key(n), 'ejected_until', NOW + seconds, 'ejections', before + 1)
  redis.call('HDEL', state_key(n), 'broken', 'probe')
end

-- After an ejection only the probe counts; other requests were sent before the ejection.
local function is_outdated(n, permit)
  return number(n, 'ejections') > 0 and redis.call('HGET', state_key(n), 'probe') ~= permit
end

local function record_response(n, permit)
  local stored = redis.call('HMGET', state_key(n), 'broken', 'ejections', 'ejected_until', 'probe')
  if not (stored[1] or stored[2] or stored[3] or stored[4]) or is_outdated(n, permit) then return end
  redis.call('HDEL', state_key(n), 'broken', 'ejections', 'ejected_until', 'probe')
end

local function record_failure(n, permit)
  if is_outdated(n, permit) then return end
  local broken = redis.call('HINCRBY', state_key(n), 'broken', 1)
  if broken >= SETTINGS.eject_after or number(n, 'ejections') > 0 then eject(n) end
end

local reports = {}

function reports.ok(n, permit, in_use)
  record_response(n, permit)
  increase(n, in_use)
end

function reports.congested(n, permit)
  record_response(n, permit)
  decrease(n)
end

function reports.rejected(n, permit, _, retry_after)
  record_response(n, permit)
  decrease(n)
  pause(n, retry_after)
end

function reports.broken(n, permit)
  record_failure(n, permit)
  decrease(n)
end
