-- What users tell of a sandbox, and what follows for its limit.

local function number(n, field) return tonumber(redis.call('HGET', place_key(n), field)) or 0 end

local function read_limit(n)
  return clamp(tonumber(redis.call('HGET', place_key(n), 'limit')) or SETTINGS.initial)
end

-- A limit that nobody comes up against tells nothing about a higher one.
local function increase(n, in_use)
  local limit = read_limit(n)
  if in_use >= limit * SETTINGS.busy_share or not nobody_waits() then
    redis.call('HSET', place_key(n), 'limit', clamp(limit + 1 / limit))
  end
end

-- The programs of one burst complain about the same overload.
local function decrease(n)
  if NOW - number(n, 'decreased_at') < SETTINGS.decrease_window then return end
  local limit = clamp(read_limit(n) * SETTINGS.decrease_factor)
  redis.call('HSET', place_key(n), 'limit', limit, 'decreased_at', NOW)
end

local function pause(n, seconds)
  local until_then = math.max(number(n, 'paused_until'), NOW + seconds)
  redis.call('HSET', place_key(n), 'paused_until', until_then)
end

local function eject(n)
  local before = number(n, 'ejections')
  local seconds = math.min(SETTINGS.eject_max, SETTINGS.eject_base * 2 ^ before)
  redis.call('HSET', place_key(n), 'ejected_until', NOW + seconds, 'ejections', before + 1)
  redis.call('HDEL', place_key(n), 'broken', 'probe')
end

-- Of an ejected sandbox only the probe tells news; the others were sent there before.
local function is_old_news(n, permit)
  return number(n, 'ejections') > 0 and redis.call('HGET', place_key(n), 'probe') ~= permit
end

local function answered(n, permit)
  if is_old_news(n, permit) then return end
  redis.call('HDEL', place_key(n), 'broken', 'ejections', 'ejected_until', 'probe')
end

local function broke(n, permit)
  if is_old_news(n, permit) then return end
  local broken = redis.call('HINCRBY', place_key(n), 'broken', 1)
  if broken >= SETTINGS.eject_after or number(n, 'ejections') > 0 then eject(n) end
end

local reports = {}

function reports.ok(n, permit, in_use)
  answered(n, permit)
  increase(n, in_use)
end

function reports.congested(n, permit)
  answered(n, permit)
  decrease(n)
end

function reports.rejected(n, permit, _, retry_after)
  answered(n, permit)
  decrease(n)
  pause(n, retry_after)
end

function reports.broken(n, permit)
  broke(n, permit)
  decrease(n)
end
