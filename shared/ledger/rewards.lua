-- Completions of a reward session: from the request to the remembered answer.
--
-- KEYS  meta, problems, completions, hashes, verdicts, jobs, used, queue, then those of the items
-- ARGV  command, time (Unix), then the command's arguments
--
-- A sample is in flight from `submit` until `settle` or `abandon`, and has fields in completions and hashes for as
-- long. Every command is idempotent.

local META, PROBLEMS, COMPLETIONS, HASHES, VERDICTS, JOBS, USED, QUEUE = unpack(KEYS)
local COMMAND, NOW = ARGV[1], ARGV[2]
local ITEMS = 8 -- keys before those of the items

-- States of a sample in a reply; a text is the remembered answer.
local GONE, WAITING, JUDGED, NO_PROBLEM, NEW = 0, 1, 2, 3, 4

local function state(sample, answer)
  local remembered = redis.call('GET', answer)
  if remembered then return remembered end
  if redis.call('HEXISTS', VERDICTS, sample) == 1 then return JUDGED end
  if redis.call('HEXISTS', HASHES, sample) == 1 then return WAITING end
  return GONE
end

local function remove(sample)
  redis.call('HDEL', COMPLETIONS, sample)
  redis.call('HDEL', HASHES, sample)
  redis.call('HDEL', JOBS, sample)
end

local commands = {}

-- submit (SAMPLE SHA COMPLETION PROBLEM)...; keys ANSWER... -> states, or nothing if the session is not open. The
-- caller enqueues a sample whose state is NEW, and brings the problem of one whose state is NO_PROBLEM and asks again.
function commands.submit(...)
  if redis.call('HEXISTS', META, 'config') == 0 then return {} end
  local given, states = { ... }, {}
  for i = 0, #given / 4 - 1 do
    local sample, sha, completion, problem = unpack(given, 4 * i + 1, 4 * i + 4)
    local found = state(sample, KEYS[ITEMS + i + 1])
    if found == GONE then
      if redis.call('HEXISTS', PROBLEMS, problem) == 0 then
        found = NO_PROBLEM
      else
        redis.call('HSET', COMPLETIONS, sample, completion)
        redis.call('HSET', HASHES, sample, sha)
        redis.call('ZADD', USED, NOW, problem)
        found = NEW
      end
    end
    states[i + 1] = found
  end
  return states
end

-- look SAMPLE...; keys ANSWER... -> states
function commands.look(...)
  local states = {}
  for i, sample in ipairs({ ... }) do states[i] = state(sample, KEYS[ITEMS + i]) end
  return states
end

-- settle SECONDS (SAMPLE ANSWER)...; keys ANSWER...: remember answers for so long, an empty one not at all.
function commands.settle(seconds, ...)
  local given = { ... }
  for i = 0, #given / 2 - 1 do
    local sample, answer = unpack(given, 2 * i + 1, 2 * i + 2)
    if redis.call('HDEL', VERDICTS, sample) == 1 then
      remove(sample)
      if answer ~= '' then redis.call('SET', KEYS[ITEMS + i + 1], answer, 'EX', seconds) end
    end
  end
end

-- abandon SAMPLE...: remove samples whose jobs still wait in the queue. A judge skips them there.
function commands.abandon(...)
  for _, sample in ipairs({ ... }) do
    local job = redis.call('HGET', JOBS, sample)
    if job and redis.call('LPOS', QUEUE, job) then remove(sample) end
  end
end

-- forget BEFORE MOST: remove problems that no sample has used since a time (Unix). -> how many
function commands.forget(before, most)
  local found = redis.call('ZRANGE', USED, '-inf', before, 'BYSCORE', 'LIMIT', 0, most)
  for _, problem in ipairs(found) do
    redis.call('HDEL', PROBLEMS, problem)
    redis.call('ZREM', USED, problem)
  end
  return #found
end

return commands[COMMAND](unpack(ARGV, 3))
