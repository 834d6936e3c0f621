#!/bin/sh
# In the machine: rxe0 on v0 (10.77.0.1) and rxe1 on v1 (10.77.0.2), the two ends of a veth pair.
#
# Both addresses are local, so the kernel would carry packets between them over lo, where rxe does not see them. The
# rules below send packets from one to the other through the pair. They must precede the rule that looks up local
# addresses, which therefore moves back.
set -eu
PATH=/usr/sbin:/usr/bin:/sbin:/bin
ip link set lo up
ip link add v0 type veth peer name v1
ip addr add 10.77.0.1/24 dev v0
ip addr add 10.77.0.2/24 dev v1
for each in v0 v1; do
  ip link set "$each" mtu 4200 up
  echo 1 >"/proc/sys/net/ipv4/conf/$each/accept_local"
  echo 0 >"/proc/sys/net/ipv4/conf/$each/rp_filter"
done
echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
ip neigh replace 10.77.0.2 lladdr "$(cat /sys/class/net/v1/address)" dev v0 nud permanent
ip neigh replace 10.77.0.1 lladdr "$(cat /sys/class/net/v0/address)" dev v1 nud permanent
ip rule add pref 1000 lookup local
ip rule del pref 0
ip rule add pref 100 iif lo from 10.77.0.1 to 10.77.0.2 lookup 100
ip rule add pref 101 iif lo from 10.77.0.2 to 10.77.0.1 lookup 101
ip route add 10.77.0.2 dev v0 src 10.77.0.1 table 100
ip route add 10.77.0.1 dev v1 src 10.77.0.2 table 101
rdma link add rxe0 type rxe netdev v0
rdma link add rxe1 type rxe netdev v1
