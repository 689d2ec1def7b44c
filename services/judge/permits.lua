-- KEYS: of a sandbox: held (permit -> expiry), alone (the exclusive permit), and paused. ARGV: a
-- command, a permit, the seconds of a lease, and
-- ask: the cap, or 0 for exclusive use. Returns 1 if the permit is granted, 2 if the sandbox is
--   reserved for it, otherwise 0. Idempotent.
-- renew: nothing more.
-- release: the seconds of a pause, which has no effect after the permit expired, or an empty text.
--   Also for a waiter, which may have been granted the permit.
local RESERVED, LEAST_PAUSE, LONGEST_PAUSE, KEPT = 2, 0.5, 60, 24 * 3600
local held, alone, paused = KEYS[1], KEYS[2], KEYS[3]
local command, permit, lease, value = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] + time[2] / 1e6

local function milliseconds(seconds) return math.ceil(1000 * seconds) end

local reserved = redis.call('GET', alone)
if command == 'release' then
  if reserved == permit then redis.call('DEL', alone) end
  if redis.call('ZREM', held, permit) == 1 and value then
    local pause = milliseconds(math.max(LEAST_PAUSE, math.min(value, LONGEST_PAUSE)))
    if redis.call('PTTL', paused) < pause then redis.call('SET', paused, 1, 'PX', pause) end
  end
  return 0
end

redis.call('ZREMRANGEBYSCORE', held, '-inf', now)
if command == 'ask' and not redis.call('ZSCORE', held, permit) then
  if redis.call('EXISTS', paused) == 1 or (reserved and reserved ~= permit) then return 0 end
  local used = redis.call('ZCARD', held)
  if value > 0 and used >= value then return 0 end
  if value == 0 then redis.call('SET', alone, permit, 'PX', milliseconds(RESERVED)) end
  if value == 0 and used > 0 then return 2 end
end
redis.call('ZADD', held, now + lease, permit)
redis.call('EXPIRE', held, KEPT)
if redis.call('GET', alone) == permit then redis.call('PEXPIRE', alone, milliseconds(lease)) end
return 1
