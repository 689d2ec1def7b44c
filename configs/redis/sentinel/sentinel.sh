#!/bin/sh
# Starts a sentinel that watches the master `redis` under the name `ledger`: sentinel.sh NAME
#
# A sentinel writes what it learns into its file, which is in memory here: after a restart the others tell it the master.
set -eu
escaped=$(printf %s "$REDIS_PASSWORD" | sed 's/[\\"]/\\&/g')
umask 077
cat > /run/redis/sentinel.conf <<END
port 26379
dir /run/redis
requirepass "$escaped"
sentinel sentinel-pass "$escaped"
sentinel resolve-hostnames yes
sentinel announce-hostnames yes
sentinel announce-ip $1
sentinel monitor ledger redis 6379 2
sentinel auth-user ledger default
sentinel auth-pass ledger "$escaped"
sentinel down-after-milliseconds ledger 5000
sentinel failover-timeout ledger 20000
END
exec redis-server /run/redis/sentinel.conf --sentinel
