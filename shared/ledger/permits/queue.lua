-- Who waits, and who gets what.

local function lease(n, permit, seconds)
  redis.call('ZADD', held_key(n), LEASE_CLOCK + seconds, permit)
  keep(held_key(n))
end

-- It is held for good when the waiter comes for it, which shows that it lives.
local function grant(place, permit, wish)
  lease(place.n, permit, SETTINGS.waiter_ttl)
  place.in_use = place.in_use + 1
  if wish.exclusive then
    redis.call('HSET', place_key(place.n), 'exclusive', permit)
    place.exclusive = true
  end
  if place.half_open then
    redis.call('HSET', place_key(place.n), 'probe', permit)
    place.probing = true
  end
  return place
end

-- Only the first exclusive waiter keeps a place from those behind it: one is drained at a time.
local function serve_exclusive(permit, wish)
  local place = emptiest(wish)
  if place and place.in_use == 0 then return grant(place, permit, wish) end
  if place and not reservation then
    reservation, place.reserved = true, true
  end
end

local function serve(permit, wish)
  if wish.exclusive then return serve_exclusive(permit, wish) end
  local place = freest(wish)
  return place and grant(place, permit, wish)
end

-- The queue

local function parse_wish(text)
  return { exclusive = text:sub(1, 1) == 'x', avoid = tonumber(text:sub(2)) }
end

local function nobody_waits() return redis.call('EXISTS', QUEUE) == 0 end

-- Who was taken for dead comes back to its old place.
local function join(waiter, ticket, wish)
  redis.call('ZADD', QUEUE, 'NX', ticket == '' and NOW or ticket, waiter)
  redis.call('HSET', WISHES, waiter, wish)
  redis.call('ZADD', HEARD, LEASE_CLOCK, waiter)
  for _, key in ipairs({ QUEUE, WISHES, HEARD }) do keep(key) end
end

local function leave(waiter)
  redis.call('ZREM', QUEUE, waiter)
  redis.call('HDEL', WISHES, waiter)
  redis.call('ZREM', HEARD, waiter)
end

local function wake(waiter)
  redis.call('LPUSH', WAKE .. waiter, 1)
  redis.call('EXPIRE', WAKE .. waiter, math.ceil(SETTINGS.lease_ttl))
end

local function forget_the_dead()
  for n = 1, COUNT do redis.call('ZREMRANGEBYSCORE', held_key(n), '-inf', LEASE_CLOCK) end
  local last_sign = LEASE_CLOCK - SETTINGS.waiter_ttl
  local dead = redis.call('ZRANGEBYSCORE', HEARD, '-inf', last_sign)
  for _, waiter in ipairs(dead) do leave(waiter) end
end

-- In order of arrival each waiter is offered what those before it left.
local function hand_out()
  if nobody_waits() then return end
  forget_the_dead()
  survey()
  local passed = 0
  while room_left() do
    local waiter = redis.call('ZRANGE', QUEUE, passed, passed)[1]
    if not waiter then return end
    if serve(waiter, parse_wish(redis.call('HGET', WISHES, waiter))) then
      leave(waiter)
      wake(waiter)
    else
      passed = passed + 1
    end
  end
end

-- Nobody announces that a pause or an ejection is over: the first in the queue asks when it is.
local function ask_again_in(waiter)
  local seconds = SETTINGS.ask_every
  if redis.call('ZRANK', QUEUE, waiter) ~= 0 then return seconds end
  for n = 1, COUNT do
    local opens_in = read_place(n).opens_at - NOW
    if opens_in > 0 then seconds = math.min(seconds, opens_in) end
  end
  return math.max(seconds, SOONEST)
end
