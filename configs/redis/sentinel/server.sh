#!/bin/sh
# Starts a Redis that sentinels may make the master or a replica: server.sh NAME REDIS-SERVER'S ARGUMENTS
#
# NAME is the host by which the others reach it. The file has the operator's password, which replicas need, in memory only.
set -eu
name=$1
shift
escaped=$(printf %s "$REDIS_PASSWORD" | sed 's/[\\"]/\\&/g')
umask 077
cat > /run/redis/replication.conf <<END
masteruser default
masterauth "$escaped"
replica-announce-ip $name
END
exec sh /etc/plumbline/redis/start.sh /run/redis/replication.conf "$@"
