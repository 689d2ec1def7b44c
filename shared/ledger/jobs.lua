-- A judge worker's part in the life of RQ's jobs. After each command RQ finds the keys as its own worker leaves them.
--
-- KEYS  queue, woken, started (RQ's registry of a queue), executions (RQ's set of the worker's executions),
--       worker (RQ's hash), and for `finish` hashes, verdicts, events and meta of the run
-- ARGV  command, worker's name, seconds of a lease, seconds of RQ's registries, time (Unix),
--       time (as RQ writes it), then the command's arguments
--
--   woken   list: a job that reached the worker while it waited for one; private to the worker

local QUEUE, WOKEN, STARTED, EXECUTIONS, WORKER = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local COMMAND, NAME, LEASE, TTL, NOW, DATE = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]

local function lease_key(job) return PREFIX .. ':lease:' .. job end
local function job_key(job) return RQ .. ':job:' .. job end
local function execution_key(job, execution) return RQ .. ':execution:' .. job .. ':' .. execution end
local function executions_key(job) return RQ .. ':executions:' .. job end

local function is_mine(job) return redis.call('GET', lease_key(job)) == NAME end

-- An execution is in four places: its hash, and the registries of its job, its queue and its worker.

local function extend(job, execution)
  redis.call('EXPIRE', execution_key(job, execution), TTL)
  redis.call('ZADD', executions_key(job), NOW + TTL + 60, execution)
  redis.call('EXPIRE', executions_key(job), TTL + 60)
  redis.call('ZADD', STARTED, NOW + TTL, job .. ':' .. execution)
end

local function begin(job, execution)
  redis.call('HSET', execution_key(job, execution), 'id', execution, 'job_id', job,
    'created_at', NOW, 'last_heartbeat', NOW, 'worker_name', NAME)
  redis.call('SADD', EXECUTIONS, job .. ':' .. execution)
  redis.call('EXPIRE', EXECUTIONS, TTL + 60)
  extend(job, execution)
end

local function set_state(state)
  if redis.call('EXISTS', WORKER) == 1 then redis.call('HSET', WORKER, 'state', state) end
end

local function finish(job, execution)
  redis.call('DEL', execution_key(job, execution))
  redis.call('ZREM', executions_key(job), execution)
  redis.call('ZREM', STARTED, job .. ':' .. execution)
  redis.call('SREM', EXECUTIONS, job .. ':' .. execution)
  if redis.call('EXISTS', EXECUTIONS) == 0 then set_state('idle') end
end

local commands = {}

-- Jobs by execution: those that a command took whose reply never arrived are taken again.
local function own_jobs()
  local jobs = {}
  for _, member in ipairs(redis.call('SMEMBERS', EXECUTIONS)) do
    local job, execution = member:match('^(.*):(.*)$')
    jobs[execution] = job
  end
  return jobs
end

local function read_job(job)
  local fields = redis.call('HMGET', job_key(job), 'data', 'meta')
  return fields[1], fields[2] and fields[2]:find('"losses"', 1, true) ~= nil
end

-- The next job, its data, and whether it is a suspect. Jobs that were deleted meanwhile are skipped.
local function next_job()
  while true do
    local job = redis.call('LPOP', WOKEN) or redis.call('LPOP', QUEUE)
    if not job then return end
    local data, suspect = read_job(job)
    if data then return job, data, suspect end
  end
end

-- A job gets its lease as it leaves the queue, so it is never in neither place.
local function hold(job, execution)
  redis.call('SET', lease_key(job), NAME, 'PX', math.floor(LEASE * 1000))
  redis.call('HSET', job_key(job), 'status', 'started', 'started_at', DATE,
    'last_heartbeat', DATE, 'worker_name', NAME)
  redis.call('PERSIST', job_key(job))
  begin(job, execution)
end

-- take IDLE EXECUTION... -> {0 or 1, {job, execution, data, suspect}...}: up to as many jobs as there
-- are executions. Idempotent. Workers were lost with a suspect; it is taken alone, by a worker that
-- is IDLE. The first number is 1 if a suspect waits until this worker is.
function commands.take(idle, ...)
  local taken, own = { 0 }, own_jobs()
  for _, execution in ipairs({ ... }) do
    local job, data, suspect = own[execution], nil, nil
    if job then
      data, suspect = read_job(job)
    else
      job, data, suspect = next_job()
      if not job then break end
      if suspect and (idle ~= '1' or #taken > 1) then
        redis.call('LPUSH', QUEUE, job)
        taken[1] = 1
        break
      end
      hold(job, execution)
    end
    table.insert(taken, { job, execution, data or '', suspect and 1 or 0 })
    if suspect then break end
  end
  if #taken > 1 then set_state('busy') end
  return taken
end

-- renew (JOB EXECUTION)... -> the jobs whose lease another worker holds.
function commands.renew(...)
  local held, lost = { ... }, {}
  for i = 1, #held, 2 do
    local job, execution = held[i], held[i + 1]
    local holder = redis.call('GET', lease_key(job))
    if holder and holder ~= NAME then
      table.insert(lost, job)
    elseif redis.call('EXISTS', job_key(job)) == 1 then
      redis.call('SET', lease_key(job), NAME, 'PX', math.floor(LEASE * 1000))
      redis.call('HSET', job_key(job), 'last_heartbeat', DATE)
      redis.call('HSET', execution_key(job, execution), 'last_heartbeat', NOW)
      redis.call('EXPIRE', EXECUTIONS, TTL + 60)
      extend(job, execution)
    end
  end
  return lost
end

-- finish JOB EXECUTION SECONDS [SAMPLE HASH VERDICT STATUS ACCEPTED] -> 1 if the verdict was written.
function commands.finish(job, execution, seconds, sample, ...)
  local written = 0
  if sample then written = write_verdict(KEYS[6], KEYS[7], KEYS[8], KEYS[9], sample, ...) end
  finish(job, execution)
  redis.call('DEL', job_key(job), job_key(job) .. ':dependents', RQ .. ':results:' .. job)
  redis.call('HINCRBY', WORKER, 'successful_job_count', 1)
  redis.call('HINCRBYFLOAT', WORKER, 'total_working_time', seconds)
  if is_mine(job) then redis.call('DEL', lease_key(job)) end
  return written
end

-- give_back: return all jobs of the worker to the head of the queue, unless another worker has them.
function commands.give_back()
  for execution, job in pairs(own_jobs()) do
    finish(job, execution)
    if is_mine(job) then
      redis.call('HSET', job_key(job), 'status', 'queued')
      redis.call('LPUSH', QUEUE, job)
      redis.call('DEL', lease_key(job))
    end
  end
  commands.stop_waiting()
end

-- stop_waiting: return a job that arrived after the worker stopped to wait for one.
function commands.stop_waiting()
  while redis.call('LMOVE', WOKEN, QUEUE, 'LEFT', 'LEFT') do end
end

return commands[COMMAND](unpack(ARGV, 7))
