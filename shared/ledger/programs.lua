-- Programs that a service instance has run by the judges.
--
-- KEYS  queue, queues, then request and job of the program
-- ARGV  command, then the command's arguments
--
-- The prologue defines enqueue.

local QUEUE, QUEUES, REQUEST, JOB = unpack(KEYS)

local commands = {}

-- send JOB SAMPLE CALL DATE META DOCUMENT MILLISECONDS: store the request, which expires, and queue its job. With
-- META, which counts lost deliveries, the job is queued again. Idempotent but for that.
function commands.send(job, sample, call, date, meta, document, milliseconds)
  if meta == '' and redis.call('EXISTS', JOB) == 1 then return end
  redis.call('SET', REQUEST, document, 'PX', milliseconds)
  redis.call('SADD', QUEUES, QUEUE)
  redis.call('DEL', JOB)
  enqueue(QUEUE, job, JOB, sample, call, date, meta)
end

-- cancel JOB: forget the request, and its job unless a judge has it.
function commands.cancel(job)
  redis.call('DEL', REQUEST)
  if redis.call('LREM', QUEUE, 0, job) > 0 then redis.call('DEL', JOB) end
end

return commands[ARGV[1]](unpack(ARGV, 2))
