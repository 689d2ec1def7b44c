-- The sandboxes: how much room they have, and which of them suits a wish.

local function holds(n, permit)
  return permit and redis.call('ZSCORE', held_key(n), permit) ~= false
end

local function clamp(limit)
  return math.max(SETTINGS.minimum, math.min(limit, SETTINGS.max_concurrency))
end

local function read_place(n)
  local fields = redis.call('HMGET', place_key(n),
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

local places, reservation

local function survey()
  places, reservation = {}, false
  for n = 1, COUNT do places[n] = read_place(n) end
end

local function is_open(place) return place.opens_at <= NOW end

-- A sandbox that comes back from an ejection is one with room for one: the probe.
local function size(place)
  return place.half_open and 1 or math.floor(place.limit + 1e-9)
end

local function room(place)
  if place.reserved or place.exclusive or not is_open(place) then return 0 end
  if place.half_open then return place.probing and 0 or 1 end
  return size(place) - place.in_use
end

local function room_left()
  for _, place in ipairs(places) do
    if room(place) > 0 then return true end
  end
  return false
end

-- Better the avoided sandbox than none: it counts only while another one is open.
local function avoids(wish, place)
  if wish.avoid ~= place.n then return false end
  for _, other in ipairs(places) do
    if other ~= place and is_open(other) then return true end
  end
  return false
end

-- The place with the greatest free share. The start goes round, so that equals take turns.
local function freest(wish)
  local best, best_share
  for i = 1, COUNT do
    local place = places[(math.floor(NOW * 1e6) + i) % COUNT + 1]
    local share = room(place) / size(place)
    if share > 0 and (not best or share > best_share) and not avoids(wish, place) then
      best, best_share = place, share
    end
  end
  return best
end

-- The place that is drained first. Nothing is granted there meanwhile, so the smallest number in
-- use never grows and comes to 0, whichever place has it.
local function emptiest(wish)
  local best
  for _, place in ipairs(places) do
    if is_open(place) and not place.reserved and not avoids(wish, place)
      and (not best or place.in_use < best.in_use) then
      best = place
    end
  end
  return best
end
