#!/bin/busybox sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# The guest of ci/kmod.sh: its first and only program. Figures go to the second serial line, the kernel's log to the first.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t cgroup2 cgroup /sys/fs/cgroup
stty -F /dev/ttyS1 raw -echo 2>/dev/null
exec >/dev/ttyS1 2>&1 </dev/null
echo +memory >/sys/fs/cgroup/cgroup.subtree_control

tasks=4
spans="16 1000 20000"
for word in $(cat /proc/cmdline); do
    case $word in
    kmod.loads=*) loads=${word#*=} ;;
    kmod.objects=*) objects=${word#*=} ;;
    kmod.pairs=*) pairs=${word#*=} ;;
    kmod.rounds=*) rounds=${word#*=} ;;
    esac
done
echo "nodes $(ls -d /sys/devices/system/node/node[0-9]* | wc -l)"

# task NUMBER COMMAND...: in a control group and on a processor of its own.
task() {
    number=$1
    shift
    mkdir -p /sys/fs/cgroup/task$number
    (
        echo 0 >/sys/fs/cgroup/task$number/cgroup.procs
        exec taskset -c $number "$@"
    )
}

# load FILE COMMAND...: sends the module's commands in succession, and prints the result of the last. `wait` waits for the other tasks.
cat >/load <<'LOAD'
#!/bin/busybox sh
exec 3<>$1
shift
for command in "$@"; do
    if [ "$command" = wait ]; then
        echo >>/arrived
        while [ ! -e /go ]; do usleep 10000; done
    else
        echo "$command" >&3 || echo "failed $command"
    fi
done
head -n 1 <&3
LOAD
chmod +x /load

# under_load [N]: one load of the module: all tasks fill it, and then use it while caches are dropped repeatedly.
under_load() {
    insmod /lowwater.ko || return 1
    # From here on every n-th allocation fails.
    echo ${1:-0} >/sys/module/lowwater/parameters/fail_every
    rm -f /go /arrived
    touch /arrived
    number=0
    while [ $number -lt $tasks ]; do
        {
            task $number /load /proc/lowwater "fill $((objects / tasks))" wait "churn $objects" >/said.$number 2>&1
            # Also if the module could not be opened.
            echo >>/arrived
        } &
        number=$((number + 1))
    done
    while [ "$(wc -l </arrived)" -lt $tasks ]; do usleep 100000; done
    /load /proc/lowwater count >>/full
    touch /go
    while jobs | grep -q Running; do
        echo 2 >/proc/sys/vm/drop_caches
        dropped=$((dropped + 1))
    done
    wait
    cat /said.* >>/churned
    grep -h failed /said.*
    rmmod lowwater || echo "failed rmmod"
}

# said PATTERN: the numbers in the module's matching lines, one for each load.
said() { dmesg | sed -n "s/.*] lowwater: $1.*/\1 \2/p"; }
sum() { awk '{ sum += $1 } END { print sum + 0 }'; }

# log_bad: counts the error lines in the log, and shows some.
bad='BUG|Oops|WARNING|general protection|Call Trace|corruption|stall|Objects remaining|lockup|must not happen|hung_task|refcount_t|UBSAN'
log_lines_bad=0
log_bad() {
    log_lines_bad=$((log_lines_bad + $(dmesg | grep -cE "$bad")))
    dmesg | grep -E "$bad" | head -20
}

dropped=0
done=0
while [ $done -lt $loads ]; do
    under_load || echo "failed insmod"
    done=$((done + 1))
done
if [ $loads -gt 0 ]; then
    echo "dropped $dropped"
    echo "full_at_least $(awk '{ print $2 }' /full | sort -n | head -1)"
    echo "put_back $(awk '{ sum += $2 } END { print sum + 0 }' /churned)"
    echo "freed $(awk '{ sum += $4 } END { print sum + 0 }' /churned)"
    echo "made_again $(awk '{ sum += $6 } END { print sum + 0 }' /churned)"
    echo "loads $(said 'end: \(-\?[0-9]*\) objects left, \([0-9]*\) adds refused' | wc -l)"
    echo "objects_left $(said 'end: \(-\?[0-9]*\) objects left, \([0-9]*\) adds refused' | sum)"
    echo "adds_refused $(said 'end: -\?\([0-9]*\) objects left, \([0-9]*\) adds refused' | awk '{ sum += $2 } END { print sum + 0 }')"
    echo "allocations_left $(said '\(-\?[0-9]*\) allocations left\(\)' | sum)"
    # At the end of each load the listed objects are the live objects.
    echo "counts_right $(said '\([0-9]*\) on lists, \([0-9-]*\) alive' | awk '$1 == $2 { right++ } END { print right + 0 }')"
fi

# The same with failing allocations of the Rust side: each one of the start, one at a time, and then one in several while it is used. Then
# adds fail and groups are not created, but the counts must be right.
scarce() {
    dmesg -c >/dev/null
    refused=0
    every=1
    while ! insmod /lowwater.ko fail_every=$every 2>/dev/null; do
        refused=$((refused + 1))
        every=$((every + 1))
        [ $every -lt 200 ] || break
    done
    rmmod lowwater || echo "failed rmmod"
    echo "scarce_starts_refused $refused"
    echo "scarce_starts_allocations_left $(said '\(-\?[0-9]*\) allocations left\(\)' | sum)"
    log_bad
    dmesg -c >/dev/null
    for every in 2 3 7; do
        under_load $every >/dev/null
    done
    echo "scarce_loads $(said '\(-\?[0-9]*\) allocations left\(\)' | wc -l)"
    echo "scarce_allocations_refused $(said '-\?\([0-9]*\) allocations left, \([0-9]*\) refused' | awk '{ sum += $2 } END { print sum + 0 }')"
    echo "scarce_adds_refused $(said 'end: -\?\([0-9]*\) objects left, \([0-9]*\) adds refused' | awk '{ sum += $2 } END { print sum + 0 }')"
    echo "scarce_objects_left $(said 'end: \(-\?[0-9]*\) objects left, \([0-9]*\) adds refused' | sum)"
    echo "scarce_allocations_left $(said '\(-\?[0-9]*\) allocations left\(\)' | sum)"
    echo "scarce_counts_right $(said '\([0-9]*\) on lists, \([0-9-]*\) alive' | awk '$1 == $2 { right++ } END { print right + 0 }')"
}
if [ $loads -gt 0 ]; then
    log_bad
    objects=$((objects / 10))
    scarce
fi

# The time of one add and del, in the same guest: the modules in turn, the minimum of the rounds.
round=0
while [ $round -lt $rounds ]; do
    for module in lowwater "lowwater_peer known=1" lowwater_peer; do
        insmod /${module%% *}.ko $(echo $module | cut -s -d" " -f2)
        # The kernel's work for a new module is done then.
        sleep 0.5
        for span in $spans; do
            task 0 /load /proc/${module%% *} "fill 20000" "pairs 1000 $span" "pairs $pairs $span" >/said
            sed "s/.*ns_per_pair/${module/ /_} $span/" /said >>/alone
        done
        rmmod ${module%% *} || echo "failed rmmod"
    done
    round=$((round + 1))
done
lowest() { awk -v module="$1" -v span="$2" '$1 == module && $2 == span { print $3 }' /alone | sort -n | head -1; }
for span in $spans; do
    [ $rounds -gt 0 ] || continue
    ours=$(lowest lowwater $span)
    known=$(lowest lowwater_peer_known=1 $span)
    asked=$(lowest lowwater_peer $span)
    echo "pair_ns_$span $ours"
    echo "list_lru_known_pair_ns_$span $known"
    echo "list_lru_asked_pair_ns_$span $asked"
    echo "pair_ratio_$span $(awk "BEGIN { print $ours / $known }")"
done

log_bad
echo "log_lines_bad $log_lines_bad"
echo "end 1"
sync
poweroff -f
