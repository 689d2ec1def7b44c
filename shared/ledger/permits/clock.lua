-- Who may use which sandbox of a pool. These files are one script, in the order clock, places,
-- queue, reports, commands: whatever is decided is decided in one piece.
--
-- KEYS  queue, wishes, heard, clock, then two of each sandbox: held, place
-- ARGV  command, settings (JSON), prefix of the wake keys, then what the command takes
--
--   queue   sorted set: waiter -> ticket, the moment it came
--   wishes  hash: waiter -> 'x' (exclusive) or '-', and the number of the sandbox it avoids, or 0
--   heard   sorted set: waiter -> when it asked last, by the lease clock
--   clock   hash: the lease clock, and when a command came last
--   held    sorted set: permit -> when it expires, by the lease clock
--   place   hash: limit, decreased_at, paused_until; broken (in a row), ejections (in a row),
--           ejected_until, probe (a permit); exclusive (a permit)
--
-- All times are seconds. A waiter and the permit it gets have the same name, which is used once;
-- so what still names a permit that is gone (probe, exclusive) says nothing any more.

local QUEUE, WISHES, HEARD, CLOCK = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local COMMAND, SETTINGS, WAKE = ARGV[1], cjson.decode(ARGV[2]), ARGV[3]
local COUNT = (#KEYS - 4) / 2
local FORGOTTEN_AFTER = 24 * 3600 -- pools that nobody uses any more leave nothing behind
local SOONEST = 0.01 -- BLPOP takes 0 for "for ever"

local function held_key(n) return KEYS[3 + 2 * n] end
local function place_key(n) return KEYS[4 + 2 * n] end

local function keep(key) redis.call('EXPIRE', key, FORGOTTEN_AFTER) end

-- Clocks

local function read_time()
  local time = redis.call('TIME')
  return time[1] + time[2] / 1e6
end

local NOW = read_time()

-- The lease clock stands still while nobody is heard. Living holders renew more often than twice in
-- a lease; when all fall silent it was Redis that was away, and they shall find their permits.
local function read_lease_clock()
  local stored = redis.call('HMGET', CLOCK, 'time', 'heard')
  local silence = NOW - (tonumber(stored[2]) or NOW)
  return (tonumber(stored[1]) or 0) + math.max(0, math.min(silence, SETTINGS.lease_ttl / 2))
end

local LEASE_CLOCK = read_lease_clock()

local function tick()
  redis.call('HSET', CLOCK, 'time', LEASE_CLOCK, 'heard', NOW)
  keep(CLOCK)
end
