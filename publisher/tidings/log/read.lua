-- What follows a position, and is it proved that nothing is missing?
--
-- KEYS  1 meta   2 log (unless ARGV 10)
-- ARGV  1 epoch, 2 seq, 3 tag of the position ('' = none)   4 without a position: replay the last N
--       5 entries at most (0 = none)   6 bytes at most   7 epoch, should the log have to begin anew
--       8 expiry of meta (seconds)   9 'resync' = a changed primary ends the epoch, 'trust' = it does not
--       10 log, when it is not among the KEYS   11 'asked' = behind ASKING
--
-- ARGV 10 is for a Cluster: while its slot moves, a log that does not exist yet, or not any more, would have several KEYS
-- refused (TRYAGAIN) for as long as the move takes, though `meta` alone proves that nothing is missing.
--
-- Reply {start, top, reason or '', missed or -1, {id, body, id, body, ...}}; the reason 'era' is an 'epoch' that ended
-- with its primary, and so with those of all other logs
--
-- The continuity rule: a position may be continued only if its epoch is the log's, and either it is the very top, or the
-- next stored entry is seq + 1 and names the position's tag as the tag before it. Every entry given is held to the same
-- rule against the one before it: at a hole the page ends, and the next read, which starts at the hole, says so.

local meta, log = KEYS[1], KEYS[2] or ARGV[10]
local at_epoch, at_tag = ARGV[1], ARGV[3]
local last, limit, max_bytes = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local new_epoch, meta_ttl_s, failover = ARGV[7], tonumber(ARGV[8]), ARGV[9]

-- What a frame on the wire adds to a body at most: position, member names, WebSocket header.
local FRAME_BYTES = 112
local NOT_HERE_YET = 'TRYAGAIN the log may still be with the old owner of the slot'
-- XRANGE goes in chunks that grow, so that a page of large bodies never loads megabytes to give 128 KiB.
local FIRST_CHUNK, LAST_CHUNK = 4, 32

local function number(n)
  return string.format('%.0f', n) -- tostring gives 1e+15
end

local function era_of(info)
  return type(info) == 'string' and string.match(info, 'master_replid:(%x+)') or ''
end

local era = ''
if failover == 'resync' then
  era = era_of(redis.call('INFO', 'replication'))
end

local state = redis.call('HMGET', meta, 'epoch', 'seq', 'tag', 'era', 'was')
local epoch, seq, tag, was = state[1], tonumber(state[2] or ''), state[3], state[5]

-- A primary that may not write just now still lets users in: an epoch that is not stored can never be proved, so the worst
-- is a resync later. With the error, a replica above all must not answer.
local function put(fields)
  local done = redis.pcall('HSET', meta, unpack(fields))
  local err = type(done) == 'table' and done.err
  if err and not (string.find(err, 'OOM') or string.find(err, 'NOREPLICAS') or string.find(err, 'MISCONF')) then
    return done
  end
end

if not (epoch and seq and tag) then
  -- Created here, so that the position of a user without events can be proved later.
  epoch, seq, tag = new_epoch, 0, '0'
  local fields = {'epoch', epoch, 'seq', '0', 'tag', '0'}
  -- Also for who trusts: a publisher that was asked for the position may not know what the gateways do.
  local stamp = era ~= '' and era or era_of(redis.pcall('INFO', 'replication'))
  if stamp ~= '' then
    fields[7], fields[8] = 'era', stamp
  end
  if redis.call('EXISTS', log) == 1 then
    redis.call('DEL', log) -- a log whose meta is gone: nobody can say what its entries follow
  end
  local refused = put(fields)
  if refused then
    return refused
  end
  redis.pcall('EXPIRE', meta, meta_ttl_s)
else
  if era ~= '' and state[4] ~= era then
    -- Another primary: it may lack what the old one acknowledged and nobody here saw, so no position of the old epoch can
    -- be proved. The entries stay, the numbers go on. Every log is stamped as it begins; one that is not was made by an
    -- earlier version: stamp it; but a position of this epoch came through a read, which stamped it, so the stamp was lost
    -- with its primary, and other things with it perhaps.
    local fields = {'era', era}
    if state[4] or at_epoch == epoch then
      -- Remembered, since the first reader alone sees the change, and all are to be told of what kind it was.
      epoch, was = new_epoch, epoch
      fields = {'era', era, 'epoch', epoch, 'was', was}
    end
    local refused = put(fields)
    if refused then
      return refused
    end
  end
  if redis.call('TTL', meta) < meta_ttl_s / 2 then
    redis.pcall('EXPIRE', meta, meta_ttl_s) -- may be refused; a read must not fail for it
  end
end

local top_id = number(seq) .. '-' .. tag
local top = epoch .. '.' .. top_id

-- One stored entry taken apart; nil for anything append.lua did not write.
local function entry(raw)
  local fields = raw[2]
  if fields and #fields == 4 and fields[1] == 'b' and fields[3] == 'p' then
    local s, t = string.match(raw[1], '^(%d+)%-(%d+)$')
    return tonumber(s), t, fields[4], fields[2]
  end
end

local function range(from, count)
  -- Never beyond the top: a log that is ahead of its meta is healed by the next append.
  return redis.call('XRANGE', log, from, top_id, 'COUNT', count)
end

local at_seq = tonumber(ARGV[2])
local start = top
local got

if at_epoch ~= '' then
  if at_epoch ~= epoch then
    return {top, top, at_epoch == was and 'era' or 'epoch', -1, {}}
  elseif at_seq > seq then
    return {top, top, 'ahead', -1, {}}
  elseif at_seq == seq then
    return {top, top, at_tag == tag and '' or 'epoch', -1, {}}
  end
  got = range(number(at_seq + 1), FIRST_CHUNK)
  local s, before = nil, nil
  if got[1] then
    local _
    s, _, before = entry(got[1])
  elseif ARGV[11] == 'asked' then
    -- Expired, or not moved yet: it is `trimmed` only if the next read finds it missing as well.
    return redis.error_reply(NOT_HERE_YET)
  end
  if s ~= at_seq + 1 then
    return {top, top, 'trimmed', seq - at_seq, {}}
  elseif before ~= at_tag then
    return {top, top, 'epoch', -1, {}}
  end
  start = epoch .. '.' .. number(at_seq) .. '-' .. at_tag
elseif last > 0 and seq > 0 then
  got = range(number(math.max(1, seq - last + 1)), FIRST_CHUNK)
  local s, before = nil, nil
  if got[1] then
    local _
    s, _, before = entry(got[1])
  end
  if not s then
    if ARGV[11] == 'asked' then
      return redis.error_reply(NOT_HERE_YET)
    end
    return {top, top, '', -1, {}}
  end
  at_seq, at_tag = s - 1, before
  start = epoch .. '.' .. number(at_seq) .. '-' .. at_tag
else
  return {top, top, '', -1, {}}
end

local entries, count, bytes, chunk = {}, 0, 0, FIRST_CHUNK
while true do
  for i = 1, #got do
    local s, t, before, body = entry(got[i])
    if count >= limit or s ~= at_seq + 1 or before ~= at_tag then
      return {start, top, '', -1, entries}
    end
    bytes = bytes + #body + FRAME_BYTES
    if bytes > max_bytes and count > 0 then
      return {start, top, '', -1, entries}
    end
    entries[2 * count + 1] = number(s) .. '-' .. t
    entries[2 * count + 2] = body
    count, at_seq, at_tag = count + 1, s, t
  end
  if #got < chunk or count >= limit then
    return {start, top, '', -1, entries}
  end
  chunk = math.min(2 * chunk, LAST_CHUNK)
  got = range(number(at_seq + 1), chunk)
end
