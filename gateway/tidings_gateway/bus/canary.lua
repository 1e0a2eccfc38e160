-- Proves in one go that this server takes writes and that what is published here is heard.
-- KEYS[1] the canary's key; ARGV[1] a value never used before, ARGV[2] its life in ms, ARGV[3] its channel, ARGV[4]
-- PUBLISH, or in a Cluster SPUBLISH.
-- PUBLISH also works on a replica, and where writes are refused; hence the write, whose error is the answer, so that the
-- caller can tell a demoted server (READONLY) from a full one (OOM), which can still be read and heard.
local written = redis.pcall('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call(ARGV[4], ARGV[3], ARGV[1])
return written
