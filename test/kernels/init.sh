#!/bin/busybox sh
# shellcheck shell=dash
# The first process of a guest: runs each test binary of the image, then turns the
# guest off. Lines that begin with "@" are for run.sh.
/bin/busybox mkdir -p /proc /sys /dev /tmp
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
exec </dev/console >/dev/console 2>&1
dmesg -n 1 # what the kernel says is read at the end, not between the tests' lines
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup /sys/fs/cgroup
ip link set lo up
ulimit -n 65536
ulimit -l unlimited # before 5.11 maps count as locked memory
for m in /modules/*.ko; do
	insmod "$m" || echo "@splat cannot load $m"
done

printf "\n@kernel %s %s\n" "$(uname -r)" "$(uname -v)"
for dir in /tests/*; do
	cd "$dir" || continue
	package=$(cat package)
	echo "@begin $package"
	xargs ./run -test.v <flags
	echo "@end $package $?"
done
dmesg | grep -E 'WARNING:|BUG:|Oops|general protection|refcount_t|INFO: task' | sed 's/^/@splat /'
echo "@done"
poweroff -f
