#!/usr/bin/env bash
# Runs the tests of everything that speaks to the kernel on Debian's kernels, each
# booted in qemu, by emulation alone unless told otherwise, so that it works where
# /dev/kvm does not.
#
#	test/kernels/run.sh [kernel ...]
#
# A kernel is a series (6.1: the oldest and the newest that the release offers now) or
# a package (linux-image-6.1.0-47-cloud-amd64-unsigned). Without any: 6.1 and 6.12.
# Fails when a test fails, when a test is skipped for another reason than a missing
# tool, and when the kernel itself complains.
#
#	RUN=regexp            only these tests
#	LIMIT=3600            seconds for one kernel
#	CACHE=directory       packages, kernels and logs (~/.cache/tautline/kernels)
#	SUITE=bookworm        the Debian release, with its backports and security updates;
#	                      trixie has newer series, bullseye older ones
#	ACCEL=tcg             kvm: by /dev/kvm, many times faster
#	MIRROR=http://...     where from
set -euo pipefail
cd "$(dirname "$0")/../.."

packages=(bpf maps agent/datapath userspace/splice) # with tests for the kernel
modules=(veth)                                      # that Debian does not build in
tools='bpftool|clang|python3|UVICORN_PYTHON'        # that the image lacks
suite=${SUITE:-bookworm}
mirror=${MIRROR:-http://deb.debian.org}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
cache=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tautline/kernels}
limit=${LIMIT:-3600}
accel=${ACCEL:-tcg}
[ $# -gt 0 ] || set -- 6.1 6.12

die() {
	echo "test-kernels: $*" >&2
	exit 1
}

# -icount: the guest's clock counts instructions, 1 ns each, so that a busy host does
# not make it a slow machine whose tests time out; while it sleeps no time passes here.
case $accel in
tcg) machine=(-accel tcg -icount "shift=0,sleep=off") ;;
kvm) machine=(-accel kvm -cpu host) ;;
*) die "ACCEL=$accel: tcg or kvm" ;;
esac

# tool COMMAND PACKAGE: collects what is missing.
missing=()
tool() {
	command -v "$1" >/dev/null || missing+=("$2")
}
tool qemu-system-x86_64 qemu-system-x86
tool cpio cpio
tool xz xz-utils
tool go golang
[ -e "$keyring" ] || missing+=(debian-archive-keyring)
command -v apt-get >/dev/null || die "needs apt-get and dpkg-deb, to fetch Debian's kernels"
if [ ${#missing[@]} -gt 0 ]; then
	[ "$(id -u)" = 0 ] || die "missing: ${missing[*]} (as root they are installed)"
	apt-get update -qq
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
fi

# Debian's packages by an apt of our own: the system's sources stay as they are.
mkdir -p "$cache"/{lists,archives}/partial "$cache/logs"
from="deb [arch=amd64 target=Packages signed-by=$keyring] $mirror"
cat >"$cache/sources.list" <<EOF
$from/debian $suite main
$from/debian-security $suite-security main
EOF
apt=(-qq -o "Dir::Etc::SourceList=$cache/sources.list" -o Dir::Etc::SourceParts=/dev/null
	-o "Dir::State::Lists=$cache/lists" -o "Dir::Cache=$cache" -o Dir::State::Status=/dev/null
	-o APT::Architecture=amd64 -o "APT::Sandbox::User=$(id -un)")
apt-get "${apt[@]}" update || die "cannot read the package lists of $mirror"
# A release that is no longer supported has no backports.
cp "$cache/sources.list" "$cache/sources.without"
echo "$from/debian $suite-backports main" >>"$cache/sources.list"
apt-get "${apt[@]}" update 2>/dev/null || mv "$cache/sources.without" "$cache/sources.list"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# unpack PACKAGE PATTERN...: puts files of a package, and of those into which newer
# kernels are split, into the cache, once.
unpack() {
	local package=$1 dir=$cache/$1 deb parts
	shift
	[ ! -d "$dir" ] || return 0
	mapfile -t parts < <(apt-cache "${apt[@]}" depends "$package" |
		sed -nE 's/^ *Depends: (linux-(binary|modules)-.*)/\1/p')
	rm -rf "$work/deb" "$dir.part" # of a run that was cut off
	mkdir -p "$work/deb" "$dir.part"
	(cd "$work/deb" && apt-get "${apt[@]}" download "$package" "${parts[@]}") || die "cannot fetch $package"
	for deb in "$work/deb/"*.deb; do
		# A part has some of the files.
		dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$dir.part" --wildcards "$@" 2>/dev/null || true
	done
	[ -n "$(find "$dir.part" -type f)" ] || die "$package has no $*"
	rm -r "$work/deb"
	find "$dir.part" -name '*.ko.xz' -exec xz -d {} +
	mv "$dir.part" "$dir"
}

# resolve KERNEL...: adds to kernels.
kernels=()
resolve() {
	local k found
	for k; do
		found=$k
		[[ $k == linux-image-* ]] || found=$(offered "$k" | sed -n '1p;$p' | uniq)
		[ -n "$found" ] || die "Debian $suite offers no kernel $k"
		mapfile -t -O ${#kernels[@]} kernels <<<"$found"
	done
}

# offered SERIES: prints the packages of a series in the order of their versions. They
# are there signed, unsigned, or both.
offered() {
	local names kind
	for kind in -unsigned ''; do
		names=$(apt-cache "${apt[@]}" pkgnames "linux-image-$1." | grep -E -- "-cloud-amd64$kind\$") || continue
		xargs -r apt-cache "${apt[@]}" madison <<<"$names" | awk '{print $3, $1}' | sort -V | awk '{print $2}'
		return
	done
}

# The image, but for the modules: busybox, init, the tests.
base() {
	local p dir
	unpack busybox-static '*/bin/busybox'
	mkdir -p "$work/image"/{bin,modules,tests}
	find "$cache/busybox-static" -name busybox -type f -exec cp {} "$work/image/bin/" \;
	install -m 755 test/kernels/init.sh "$work/image/init"
	for p in "${packages[@]}"; do
		dir=$work/image/tests/${p//\//-}
		mkdir "$dir"
		CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go test -c -trimpath -ldflags '-s -w' -o "$dir/run" "./$p"
		find "$p" -maxdepth 1 \( -name '*.c' -o -name testdata \) -exec cp -r {} "$dir/" \;
		echo "$p" >"$dir/package"
		echo "-test.timeout=$((limit * 3 / 4))s -test.run=${RUN:-.}" >"$dir/flags"
	done
	echo "-streams=150 -clients=15" >>"$work/image/tests/userspace-splice/flags"
}

# boot PACKAGE LOG: runs the image.
boot() {
	local m cpu=()
	if [ "$accel" = tcg ]; then
		# With cmpxchg16b 6.12 panics now and then under emulation; without it 7.x
		# has no memory (ENOMEM) for what a program keeps with a socket.
		cpu=(-cpu "Haswell,-pcid,-cx16")
		[[ $1 =~ ^linux-image-[3-6]\. ]] || cpu=(-cpu "Haswell,-pcid")
	fi
	rm -f "$work/image/modules/"*
	for m in "${modules[@]}"; do
		find "$cache/$1" -name "$m.ko" -exec cp {} "$work/image/modules/" \;
	done
	(cd "$work/image" && find . | cpio -o -H newc -R 0:0 --quiet | gzip -1) >"$work/initrd"
	timeout "$limit" qemu-system-x86_64 "${machine[@]}" "${cpu[@]}" -m 512 -smp 1 -nographic -no-reboot -nodefaults -serial stdio \
		-kernel "$(find "$cache/$1" -name 'vmlinuz*' -type f)" -initrd "$work/initrd" \
		-append 'console=ttyS0 quiet panic=-1' </dev/null 2>/dev/null | tr -d '\r' >"$2" || true
}

# verdict LOG: prints what is wrong, nothing when all is well.
verdict() {
	local p
	grep -q '^@done' "$1" || echo "the guest did not come to its end: a panic, or over $limit s"
	for p in "${packages[@]}"; do
		grep -qx "@end $p 0" "$1" || echo "$p failed"
	done
	grep -q '^--- PASS' "$1" || echo "nothing passed"
	[ "$(count ' *--- SKIP' "$1")" -le "$(count ".*_test\.go:[0-9]+: needs ($tools)\b" "$1")" ] ||
		echo "a test was skipped though no tool was missing"
	sed -n 's/^@splat /kernel: /p' "$1"
}

count() {
	grep -cE "^$1" "$2" || true
}

row() {
	printf '%-30s %-22s %-6s %5s %5s %5s %6s' "$@"
}

resolve "$@"
base
patterns=() logs=() failed=0
for m in "${modules[@]}"; do
	patterns+=("*/$m.ko*")
done
table=$(row KERNEL VERSION RESULT PASS FAIL SKIP TIME)
for k in "${kernels[@]}"; do
	unpack "$k" '*/vmlinuz*' "${patterns[@]}"
	log=$cache/logs/$k.log
	logs+=("$log")
	echo "== $k, log in $log"
	start=$SECONDS
	boot "$k" "$log"
	wrong=$(verdict "$log")
	result=PASS
	if [ -n "$wrong" ]; then
		result=FAIL failed=1
		echo "$wrong"
		grep -E '^ *--- FAIL|_test\.go:[0-9]+:|^panic:|Kernel panic' "$log" || true
	fi
	name=$(sed -n 's/^@kernel \([^ ]*\).*/\1/p' "$log")
	version=$(sed -n 's/^@kernel .* Debian \([^ ]*\).*/\1/p' "$log")
	table+=$'\n'$(row "${name:-$k}" "${version:-?}" "$result" "$(count '--- PASS' "$log")" \
		"$(count '--- FAIL' "$log")" "$(count '--- SKIP' "$log")" "$((SECONDS - start))s")
done
echo
grep -hE "_test\.go:[0-9]+: needs ($tools)\b" "${logs[@]}" | sed 's/^ */skipped: /' | sort -u || true
echo "$table"
exit $failed
