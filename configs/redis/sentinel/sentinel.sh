#!/bin/sh
# Starts a sentinel that watches the master `redis` under the name `ledger`
#
# A sentinel writes what it learns into its file, which is in memory here: after a restart the others tell it the master.
# Addresses and not names: a container that died has no name any more, and to look for it takes a sentinel seconds in which
# it does nothing else.
set -eu
escaped=$(printf %s "$REDIS_PASSWORD" | sed 's/[\\"]/\\&/g')
master=$(getent hosts redis | cut -d ' ' -f 1)
umask 077
cat > /run/redis/sentinel.conf <<END
port 26379
dir /run/redis
requirepass "$escaped"
sentinel sentinel-pass "$escaped"
sentinel announce-ip $(hostname -i | cut -d ' ' -f 1)
sentinel monitor ledger $master 6379 2
sentinel auth-user ledger default
sentinel auth-pass ledger "$escaped"
sentinel down-after-milliseconds ledger 5000
sentinel failover-timeout ledger 20000
END
exec redis-server /run/redis/sentinel.conf --sentinel
