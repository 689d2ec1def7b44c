-- What can be asked of the script.

local commands = {}

local function granted_place(permit)
  for n = 1, COUNT do
    if holds(n, permit) then return n end
  end
end

local function take(permit, n)
  lease(n, permit, SETTINGS.lease_ttl)
  redis.call('DEL', WAKE .. permit)
  return { n }
end

-- ask NAME TICKET WISH -> {place}, or {0, ticket, seconds after which to ask again}. It may be
-- repeated; to ask is also how a waiter learns what it was woken for and shows that it lives.
function commands.ask(name, ticket, wish)
  local n = granted_place(name)
  if n then return take(name, n) end
  forget_the_dead()
  if nobody_waits() then -- the common case, without a detour through the queue
    survey()
    local place = serve(name, parse_wish(wish))
    if place then return take(name, place.n) end
  end
  join(name, ticket, wish)
  hand_out()
  n = granted_place(name)
  if n then return take(name, n) end
  return { 0, redis.call('ZSCORE', QUEUE, name), tostring(ask_again_in(name)) }
end

-- renew (PLACE PERMIT)... -> the permits that have expired. They stay so: others may be there.
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

-- release PLACE PERMIT OUTCOME RETRY_AFTER. Repeated or too late it changes nothing.
function commands.release(n, permit, outcome, retry_after)
  local in_use = redis.call('ZCARD', held_key(n))
  if redis.call('ZREM', held_key(n), permit) == 1 and reports[outcome] then
    reports[outcome](n, permit, in_use, tonumber(retry_after))
    keep(place_key(n))
  end
  hand_out()
end

-- withdraw NAME: a waiter gives up, be it that it has just been granted a permit.
function commands.withdraw(name)
  leave(name)
  for n = 1, COUNT do redis.call('ZREM', held_key(n), name) end
  redis.call('DEL', WAKE .. name)
  hand_out()
end

-- state -> limit, in use, waiting, ejected for, paused for; place after place.
function commands.state()
  local found = {}
  local waiting = redis.call('ZCOUNT', HEARD, '(' .. LEASE_CLOCK - SETTINGS.waiter_ttl, '+inf')
  for n = 1, COUNT do
    local in_use = redis.call('ZCOUNT', held_key(n), '(' .. LEASE_CLOCK, '+inf')
    local ejected_for = math.max(0, number(n, 'ejected_until') - NOW)
    local paused_for = math.max(0, number(n, 'paused_until') - NOW)
    for _, value in ipairs({ read_limit(n), in_use, waiting, ejected_for, paused_for }) do
      table.insert(found, tostring(value))
    end
  end
  return found
end

tick()
return commands[COMMAND](unpack(ARGV, 4))
