#!/bin/sh
# Mosquitto with the users in EDGEFL_USERS, written "name:password name:password". Their hashes go to a folder in
# memory, and no password ever stands in a command line.
set -eu
umask 077
conf=${EDGEFL_BROKER_CONF:-/etc/mosquitto/mosquitto.conf}
home=${EDGEFL_BROKER_HOME:-/run/edgefl}
for user in $EDGEFL_USERS; do
    echo "$user"
done > "$home/passwd"
mosquitto_passwd -U "$home/passwd"
sed "s#^password_file .*#password_file $home/passwd#" "$conf" > "$home/mosquitto.conf"
exec mosquitto -c "$home/mosquitto.conf"
