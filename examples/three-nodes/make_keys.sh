#!/bin/sh
# Makes the key pair by which a SuperNode proves who it is.
#
#   sh make_keys.sh DIRECTORY NAME [NAME ...]
#
# A party runs it on its own machine: NAME (the private key) stays there, NAME.pub goes to the
# SuperLink's administrator.
set -eu
[ $# -ge 2 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2; }
directory=$1
shift
umask 077
mkdir -p "$directory"
for name in "$@"; do
    ssh-keygen -q -t ecdsa -b 384 -N "" -C "$name" -f "$directory/$name"
done
