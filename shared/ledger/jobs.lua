-- A judge worker's part in the life of RQ's jobs. After each command RQ finds the keys as its own worker leaves them.
--
-- It reads jobs as data: an entry of the queue that is no job is dropped, and nothing that a job names is called.
--
-- KEYS  queue, woken, started (RQ's registry of a queue), executions (RQ's set of the worker's executions),
--       worker (RQ's hash), failed (RQ's registry of a queue), and for `finish` hashes, verdicts, events and
--       meta of the run, and cases if there are any
-- ARGV  command, worker's name, seconds of a lease, seconds of RQ's registries, time (Unix),
--       time (as RQ writes it), then the command's arguments; or merged commands
--
--   woken    list: a job that reached the worker while it waited for one; private to the worker
--
-- Registries, executions, results and leases may be changed to other types at any time. RQ only shows them, so such a
-- key is left out (pcall): it must not end a command that has taken, or is also about, other jobs.
--
-- The prologue defines PREFIX and RQ (prefixes of keys) and QUEUE_NAME.

local QUEUE, WOKEN, STARTED, EXECUTIONS, WORKER, FAILED = unpack(KEYS)
local COMMAND, NAME, LEASE, TTL, NOW, DATE = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]


local function lease_key(job) return PREFIX .. ':lease:' .. job end
local function job_key(job) return RQ .. ':job:' .. job end
local function execution_key(job, execution) return RQ .. ':execution:' .. job .. ':' .. execution end
local function executions_key(job) return RQ .. ':executions:' .. job end

local function is_mine(job) return redis.pcall('GET', lease_key(job)) == NAME end

local function is_hex(text, length) return #text == length and not text:find('[^0-9a-f]') end
local function is_id(job) return is_hex(job, 40) end

-- Job and execution of a member of a registry, or nothing.
local function parse_member(member)
  if #member ~= 73 or member:sub(41, 41) ~= ':' then return end
  local job, execution = member:sub(1, 40), member:sub(42)
  if is_id(job) and is_hex(execution, 32) then return job, execution end
end

-- The data and meta data of a job, or nothing if it was deleted or is none.
local function read_job(job)
  if not is_id(job) then return end
  local values = redis.pcall('HMGET', job_key(job), 'data', 'meta')
  if not values.err and values[1] then return values end
end

local function is_suspect(values) return values[2] and values[2]:find('"losses"', 1, true) ~= nil end

-- An execution is in four places: its hash, and the registries of its job, its queue and its worker.

local function extend(job, execution)
  redis.call('EXPIRE', execution_key(job, execution), TTL)
  redis.pcall('ZADD', executions_key(job), NOW + TTL + 60, execution)
  redis.call('EXPIRE', executions_key(job), TTL + 60)
  redis.pcall('ZADD', STARTED, NOW + TTL, job .. ':' .. execution)
end

local function begin(job, execution)
  redis.pcall('HSET', execution_key(job, execution), 'id', execution, 'job_id', job,
    'created_at', NOW, 'last_heartbeat', NOW, 'worker_name', NAME)
  redis.pcall('SADD', EXECUTIONS, job .. ':' .. execution)
  extend(job, execution)
end

local function set_state(state)
  if redis.call('EXISTS', WORKER) == 1 then redis.pcall('HSET', WORKER, 'state', state) end
end

-- Jobs that ended in this call, and what is written of them once, for all.
local ended, successes, failures, worked = false, 0, 0, 0

local function conclude()
  if not ended then return end
  if redis.call('EXISTS', EXECUTIONS) == 0 then set_state('idle') end
  if failures > 0 then redis.pcall('HINCRBY', WORKER, 'failed_job_count', failures) end
  if successes == 0 then return end
  redis.pcall('HINCRBY', WORKER, 'successful_job_count', successes)
  redis.pcall('HINCRBYFLOAT', WORKER, 'total_working_time', worked)
end

-- End an execution, and delete other keys together with it.
local function finish(job, execution, ...)
  ended = true
  redis.call('DEL', execution_key(job, execution), ...)
  redis.pcall('ZREM', executions_key(job), execution)
  redis.pcall('ZREM', STARTED, job .. ':' .. execution)
  redis.pcall('SREM', EXECUTIONS, job .. ':' .. execution)
end

-- The keys of a job that RQ's tools know, but for those of its executions.
local function keys_of(job) return job_key(job), job_key(job) .. ':dependents', RQ .. ':results:' .. job end

local function release(job)
  if is_mine(job) then redis.call('DEL', lease_key(job)) end
end

-- Queue a job again, or record it as failed if it has no retry left. `most` bounds what the job itself says.
local function retry_or_fail(job, most, ttl, reason)
  local key = job_key(job)
  local left = math.min(tonumber(redis.call('HGET', key, 'retries_left')) or 0, tonumber(most))
  if left > 0 then
    redis.call('HSET', key, 'status', 'queued', 'retries_left', left - 1)
    redis.call('RPUSH', QUEUE, job)
    return
  end
  redis.call('HSET', key, 'status', 'failed', 'ended_at', DATE)
  redis.call('EXPIRE', key, ttl)
  local results = RQ .. ':results:' .. job
  redis.pcall('XADD', results, 'MAXLEN', 10, '*', 'type', 2, 'worker_name', NAME, 'exc_string', reason)
  redis.call('EXPIRE', results, ttl)
  redis.pcall('ZADD', FAILED, NOW + ttl, job)
end

local commands = {}

-- Jobs by execution: those that a command took whose reply never arrived are taken again.
local function own_jobs()
  local jobs = {}
  for _, member in ipairs(redis.pcall('SMEMBERS', EXECUTIONS)) do
    local job, execution = parse_member(member)
    if job then jobs[execution] = job end
  end
  return jobs
end

local woken = true -- whether a job may be in the list

-- The next job and its values. What is no job is skipped.
local function next_job()
  while true do
    local job = woken and redis.call('LPOP', WOKEN)
    woken = job
    job = job or redis.call('LPOP', QUEUE)
    if not job then return end
    local values = read_job(job)
    if values then return job, values end
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

-- take IDLE EXECUTION... -> {0 or 1, {job, execution, values}...}: up to as many jobs as there
-- are executions. Idempotent. Workers were lost with a suspect; it is taken alone, by a worker that is IDLE. The first
-- number is 1 if a suspect waits until this worker is.
function commands.take(idle, ...)
  local jobs, own, blocked = {}, own_jobs(), 0
  for _, execution in ipairs({ ... }) do
    local job, values = own[execution], nil
    if job then
      values = read_job(job)
    else
      job, values = next_job()
      if not job then break end
      if is_suspect(values) and (idle ~= '1' or #jobs > 0) then
        redis.call('LPUSH', QUEUE, job)
        blocked = 1
        break
      end
      hold(job, execution)
    end
    table.insert(jobs, { job, execution, values or {} })
    if values and is_suspect(values) then break end
  end
  if #jobs > 0 then
    redis.call('EXPIRE', EXECUTIONS, TTL + 60)
    set_state('busy')
  end
  return { blocked, unpack(jobs) }
end

-- renew (JOB EXECUTION)... -> the jobs whose lease another worker holds.
function commands.renew(...)
  local held, lost, own = { ... }, {}, {}
  local members = redis.pcall('SMEMBERS', EXECUTIONS) -- a job that ended meanwhile is not among them
  local unknown = members.err ~= nil
  for _, member in ipairs(members) do own[member] = true end
  for i = 1, #held, 2 do
    local job, execution = held[i], held[i + 1]
    local holder = redis.pcall('GET', lease_key(job))
    if holder and holder ~= NAME then
      table.insert(lost, job)
    elseif (unknown or own[job .. ':' .. execution]) and redis.call('EXISTS', job_key(job)) == 1 then
      redis.call('SET', lease_key(job), NAME, 'PX', math.floor(LEASE * 1000))
      redis.pcall('HSET', job_key(job), 'last_heartbeat', DATE)
      redis.pcall('HSET', execution_key(job, execution), 'last_heartbeat', NOW)
      redis.call('EXPIRE', EXECUTIONS, TTL + 60)
      extend(job, execution)
    end
  end
  return lost
end

local function complete(job, execution, seconds)
  finish(job, execution, keys_of(job))
  release(job)
  successes, worked = successes + 1, worked + seconds
end

-- finish JOB EXECUTION SECONDS [SAMPLE HASH VERDICT STATUS ACCEPTED [CASES]] -> 1 if the verdict was written.
function commands.finish(job, execution, seconds, sample, ...)
  local written = 0
  if sample then written = write_verdict(KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], sample, ...) end
  complete(job, execution, seconds)
  return written
end

-- fail JOB EXECUTION RETRIES TTL REASON -> 1, or 0 if the job does not exist anymore or another worker has it.
function commands.fail(job, execution, retries, ttl, reason)
  finish(job, execution)
  failures = failures + 1
  local holder = redis.pcall('GET', lease_key(job))
  if holder and holder ~= NAME then return 0 end
  redis.call('DEL', lease_key(job))
  if redis.call('HEXISTS', job_key(job), 'data') == 0 then return 0 end
  retry_or_fail(job, retries, ttl, reason)
  return 1
end

-- clean: forget executions of lost workers, failed jobs that have expired, and workers that are gone. Who waits for a
-- verdict delivers the job of a lost worker again.
function commands.clean()
  redis.pcall('ZREMRANGEBYSCORE', STARTED, '-inf', NOW)
  redis.pcall('ZREMRANGEBYSCORE', FAILED, '-inf', NOW)
  local all, prefix = RQ .. ':workers', RQ .. ':worker:'
  local ours = all .. ':' .. QUEUE_NAME
  for _, key in ipairs(redis.pcall('SMEMBERS', ours)) do
    if key:sub(1, #prefix) ~= prefix or redis.call('EXISTS', key) == 0 then
      redis.call('SREM', ours, key)
      redis.pcall('SREM', all, key)
      -- Its job was lost with it, and is delivered again by who waits for the verdict.
      redis.call('DEL', PREFIX .. ':woken:' .. key:sub(#prefix + 1))
    end
  end
end

-- give_back: return all jobs of the worker to the head of the queue, unless another worker has them.
function commands.give_back()
  for execution, job in pairs(own_jobs()) do
    finish(job, execution)
    if is_mine(job) then
      redis.pcall('HSET', job_key(job), 'status', 'queued')
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

local FIRST = 7
