#!/bin/sh
# Starts a Redis that sentinels may make the master or a replica: server.sh REDIS-SERVER'S ARGUMENTS
#
# It replicates $REPLICA_OF at first, if that is set. Addresses and not names: one that looks for the name of a container that
# died answers nobody meanwhile. The file has the operator's password, which replicas need, in memory only.
set -eu
escaped=$(printf %s "$REDIS_PASSWORD" | sed 's/[\\"]/\\&/g')
umask 077
cat > /run/redis/replication.conf <<END
masteruser default
masterauth "$escaped"
replica-announce-ip $(hostname -i | cut -d ' ' -f 1)
END
if [ -n "${REPLICA_OF:-}" ]; then
  echo "replicaof $(getent hosts "$REPLICA_OF" | cut -d ' ' -f 1) 6379" >> /run/redis/replication.conf
fi
exec sh /etc/plumbline/redis/start.sh /run/redis/replication.conf "$@"
