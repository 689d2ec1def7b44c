#!/bin/sh
# Generates the missing passwords of Redis' users. Redis (999) may read all of them, and the group of each service its own.
set -eu
cd /run/secrets/redis
umask 077
generate() { # USER GROUP
  [ ! -e "$1" ] || return 0
  od -An -N24 -tx1 /dev/urandom | tr -d ' \n' > new
  chmod 440 new
  chown "999:$2" new
  mv new "$1"
}
rm -f new
generate password 20000 # the operator's
generate judge 20001
generate runner 20002
generate aggregator 20003
generate reward 20004
