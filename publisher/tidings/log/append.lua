-- Append one event to a user's log and tell whoever listens: all of it, or nothing.
--
-- KEYS  1 meta   2 log   3 idempotency key (only when the caller gave one)
-- ARGV  1 channel   2 body   3 epoch, should the log have to begin anew   4 tag of this entry
--       5 entries kept at most   6 expiry of the log   7 of meta   8 of the idempotency key (seconds)
--       9 PUBLISH, or in a Cluster SPUBLISH   10, 11 log and idempotency key, when they are not among the KEYS
-- Reply {position, 1 if it was stored before, receivers PUBLISH saw}, and with ARGV 10 the record, '' if it is gone
--
-- ARGV 10 and 11 are for a slot of a Cluster that moves, after ASK: its old owner has none of the keys, and the new one
-- refuses several KEYS of which one is absent (TRYAGAIN), as the idempotency key of a new event always is. Of one key
-- it takes our word, and of each key that a script uses as well. Listeners are still with the old owner, which the
-- caller must therefore tell: hence the record.
--
-- The order is the promise. The one command that can be refused (XADD: memory full, too few replicas, read-only) comes
-- first, and PUBLISH last, so nobody ever hears of an event that is not stored; PUBLISH itself works even where XADD
-- is refused. Redis checks for a refusal only until the first command that can write, whether or not it changes
-- anything: hence no such command before XADD, unless it frees what is in XADD's way.
-- Epoch and tag are arguments, because Lua's random numbers repeat after a restart.

local meta, log, idem = KEYS[1], KEYS[2] or ARGV[10], KEYS[3] or ARGV[11]
local channel, body, new_epoch, tag = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local asked = ARGV[10]

local function number(n)
  return string.format('%.0f', n) -- tostring gives 1e+15
end

-- The record of an entry stored before; its body may differ from the one given now.
local function record_at(position)
  local epoch, seq, entry_tag = string.match(position, '^(%w+)%.(%d+)%-(%d+)$')
  local id = seq .. '-' .. entry_tag
  local found = redis.call('XRANGE', log, id, id)[1]
  if not found or found[2][1] ~= 'b' or found[2][3] ~= 'p' then
    return ''
  end
  return 'e' .. epoch .. '.' .. number(seq - 1) .. '-' .. found[2][4] .. ' ' .. position .. '\n' .. found[2][2]
end

if idem then
  local position = redis.call('GET', idem)
  if position then
    -- A write, though nothing new is stored: WAIT after a script that wrote nothing returns at once, and would call
    -- an event replicated that never reached a replica.
    redis.call('EXPIRE', idem, ARGV[8])
    return {position, 1, 0, asked and record_at(position) or nil}
  end
end

local function add(seq, before)
  -- '=': with '~' the stream keeps whole nodes, and `stream-node-max-entries 0` makes one node of it all.
  return redis.pcall('XADD', log, 'MAXLEN', '=', ARGV[5], seq .. '-' .. tag, 'b', body, 'p', before)
end

local state = redis.call('HMGET', meta, 'epoch', 'seq', 'tag')
local epoch, top_seq, top_tag = state[1], tonumber(state[2] or ''), state[3]
local begins = not (epoch and top_seq and top_tag)
if begins and redis.call('EXISTS', log) == 1 then
  redis.call('DEL', log) -- a log whose meta is gone: nobody can say what its entries follow
end
if begins then
  epoch, top_seq, top_tag = new_epoch, 0, '0'
end

local added = add(number(top_seq + 1), top_tag)
if type(added) == 'table' and added.err and string.find(added.err, 'equal or smaller', 1, true) then
  -- The log is ahead of meta (an old meta was restored by hand). Which of the two is right cannot be known, so what
  -- clients hold must stop being provable.
  redis.call('DEL', log)
  begins, epoch, top_seq, top_tag = true, new_epoch, 0, '0'
  added = add('1', '0')
end
if type(added) == 'table' then
  return added
end

if begins then
  redis.call('DEL', meta) -- era and read mark belonged to the epoch before
  -- Stamped with the first event, which no replica can have without it. A first reader's stamp might be lost with its
  -- primary, as what was acknowledged after it; and the next newcomer's would then hide that from those who were there.
  local info = redis.pcall('INFO', 'replication')
  local era = type(info) == 'string' and string.match(info, 'master_replid:(%x+)')
  if era then
    redis.call('HSET', meta, 'era', era)
  end
end
local now = redis.call('TIME')
local seq = number(top_seq + 1)
local last_ms = number(now[1] * 1000 + math.floor(now[2] / 1000))
redis.call('HSET', meta, 'epoch', epoch, 'seq', seq, 'tag', tag, 'last_ms', last_ms)
redis.call('EXPIRE', log, ARGV[6])
redis.call('EXPIRE', meta, ARGV[7])

local before = epoch .. '.' .. number(top_seq) .. '-' .. top_tag
local position = epoch .. '.' .. seq .. '-' .. tag
if idem then
  redis.call('SET', idem, position, 'EX', ARGV[8])
end
local record = 'e' .. before .. ' ' .. position .. '\n' .. body
return {position, 0, redis.call(ARGV[9], channel, record), asked and record or nil}
