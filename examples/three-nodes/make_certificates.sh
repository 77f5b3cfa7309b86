#!/bin/sh
# Makes an authority and a certificate for the SuperLink.
#
#   sh make_certificates.sh DIRECTORY HOST [HOST ...]
#
# HOST: every name or IPv4 address under which SuperNodes and users reach the SuperLink. The
# machine's own 127.0.0.1 and localhost are always in.
#
# ca.crt goes to every party and user. server.key and server.crt stay on the SuperLink's machine.
# ca.key signs further certificates: keep it away from all of these machines.
set -eu
[ $# -ge 2 ] || { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2; }
directory=$1
shift

names="DNS:localhost,IP:127.0.0.1"
for host in "$@"; do
    case $host in
        localhost | 127.0.0.1) ;;
        *[!0-9.]*) names="$names,DNS:$host" ;;
        *) names="$names,IP:$host" ;;
    esac
done

umask 077
mkdir -p "$directory"
cd "$directory"
openssl ecparam -name prime256v1 -genkey -noout -out ca.key
openssl req -new -x509 -sha256 -days 365 -key ca.key -out ca.crt -subj "/CN=flwr-causal authority" \
    -addext "keyUsage=critical,keyCertSign,cRLSign"
openssl ecparam -name prime256v1 -genkey -noout -out server.key
openssl req -new -sha256 -key server.key -out server.csr -subj "/CN=$1"
cat > server.ext << EOF
subjectAltName = $names
basicConstraints = CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
EOF
openssl x509 -req -sha256 -days 365 -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial \
    -extfile server.ext -out server.crt
rm -f server.csr server.ext ca.srl
chmod 644 ca.crt server.crt
