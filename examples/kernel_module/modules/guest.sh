#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0
# The guest of ci/rust-kernel.sh: its first and only program. Figures go to the second serial line, the kernel's log to the first.
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t cgroup2 cgroup /sys/fs/cgroup
stty -F /dev/ttyS1 raw -echo 2>/dev/null
exec >/dev/ttyS1 2>&1 </dev/null
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
# The kernel no longer logs each drop: thousands of lines would take the place of others.
echo 4 >/proc/sys/vm/drop_caches
groups=/sys/fs/cgroup

for word in $(cat /proc/cmdline); do
    case $word in
    lw.*=*) eval "${word#lw.}" ;;
    esac
done
echo "nodes $(ls -d /sys/devices/system/node/node[0-9]* | wc -l)"
processors=$(grep -c ^processor /proc/cpuinfo)
# The checks that the kernel is built with.
echo "is_rt $(uname -v | grep -c PREEMPT_RT)"
echo "checks_freed $(dmesg | grep -c 'kfence: initialized')"
echo "checks_addresses $(dmesg | grep -c 'KernelAddressSanitizer initialized')"

# load FILE COMMAND...: sends commands in succession, and prints the result of the last. `wait` waits for the other tasks.
# The last command may be `until_gone COMMAND`: it is repeated until the module removes the file.
cat >/load <<'LOAD'
#!/bin/busybox sh
file=$1
exec 3<>/proc/$file
shift
for command in "$@"; do
    case $command in
    wait)
        echo >>/arrived
        while [ ! -e /go ]; do usleep 10000; done
        ;;
    until_gone*)
        head -n 1 <&3
        echo >>/worked
        while echo "${command#until_gone }" >&3; do :; done 2>/dev/null
        [ ! -e /proc/$file ] || echo "failed ${command#until_gone }"
        exit
        ;;
    *) echo "$command" >&3 || echo "failed $command" ;;
    esac
done
head -n 1 <&3
LOAD
chmod +x /load

# task NUMBER COMMAND...: in a control group and on a processor of its own.
task() {
    number=$1
    shift
    mkdir -p $groups/task$number
    (
        echo 0 >$groups/task$number/cgroup.procs
        exec taskset -c $((number % processors)) "$@"
    )
}

# log_bad: counts the error lines in the log, and shows some.
bad='(^|[^E])BUG|Oops|WARNING|general protection|Call Trace|corruption|stall|Objects remaining|lockup|hung_task|refcount_t|UBSAN|KFENCE: [^i]|INFO: possible|lock held|suspicious RCU|bad unlock|panicked'
log_lines_bad=0
log_bad() {
    log_lines_bad=$((log_lines_bad + $(dmesg | grep -cE "$bad")))
    dmesg | grep -E "$bad" | head -20
}
# said PATTERN: the numbers in the matching lines of the log.
said() { dmesg | sed -n "s/.*] $1.*/\1 \2/p"; }
sum() { awk '{ sum += $1 } END { print sum + 0 }'; }

# under_load MODULE FILE: all tasks fill it, and then use it while caches are dropped repeatedly. It is unloaded in the middle of
# both: the tasks have its file open and go on until the file is gone.
under_load() {
    insmod /$1.ko || return 1
    rm -f /go /arrived /worked /unloaded /dropped
    touch /arrived /worked /dropped
    number=0
    while [ $number -lt 4 ]; do
        {
            task $number /load $2 "fill $((objects / 4))" wait "churn $objects" "until_gone churn 1000" >/said.$number 2>&1
            # Also if the module could not be opened.
            echo >>/arrived
            echo >>/worked
        } &
        number=$((number + 1))
    done
    while [ "$(wc -l </arrived)" -lt 4 ]; do usleep 100000; done
    /load $2 count | sed 's/listed//; s/alive//' >>/full
    touch /go
    while [ ! -e /unloaded ]; do
        echo 2 >/proc/sys/vm/drop_caches
        echo >>/dropped
    done &
    while [ "$(wc -l </worked)" -lt 4 ]; do usleep 100000; done
    rmmod $1 || echo "failed rmmod"
    touch /unloaded
    wait
    dropped=$((dropped + $(wc -l </dropped)))
    cat /said.* >>/churned
    ! grep -h failed /said.*
}

# loads_of MODULE FILE: $loads loads.
loads_of() {
    dropped=0 done=0
    rm -f /full /churned
    # At first with the boot.
    log_bad
    dmesg -c >/dev/null
    while [ $done -lt $loads ]; do
        under_load $1 $2 || echo "failed load of $1"
        done=$((done + 1))
    done
    echo "$2.dropped $dropped"
    echo "$2.full_at_least $(awk '{ print $1 }' /full | sort -n | head -1)"
    echo "$2.promoted $(awk '{ sum += $2 } END { print sum + 0 }' /churned)"
    echo "$2.made_again $(awk '{ sum += $8 } END { print sum + 0 }' /churned)"
    echo "$2.loads $(said "$2: \([0-9]*\) entries left" | wc -l)"
    # The commands that ran when the unload began.
    echo "$2.commands_at_unload $(said "$2: \([0-9]*\) commands at unload\(\)" | sum)"
    echo "$2.entries_left $(said "$2: \([0-9]*\) entries left\(\)" | sum)"
    [ $2 = on_list_lru ] || echo "$2.allocations_left $(said "$2: \([0-9]*\) allocations left\(\)" | sum)"
    # When the tasks and the shrinker are gone, the listed entries are the live ones.
    echo "$2.counts_right $(said "$2: \([0-9]*\) on lists, \([0-9]*\) alive" | awk '$1 == $2 { right++ } END { print right + 0 }')"
    log_bad
}

# nested_of MODULE FILE: the entries of a removed group become its parent's, so the parent's memory.max reclaims them.
nested_of() {
    insmod /$1.ko || return 1
    mkdir -p $groups/above
    echo +memory >$groups/above/cgroup.subtree_control
    mkdir $groups/above/sub
    (echo 0 >$groups/above/sub/cgroup.procs; exec /load $2 "fill 40000") >/dev/null
    rmdir $groups/above/sub || echo "failed rmdir"
    sleep 1
    echo "$2.nested_charged $(cat $groups/above/memory.current)"
    echo "$2.nested_listed $(/load $2 count | awk '{ print $2 }')"
    echo 1M >$groups/above/memory.max
    echo "$2.nested_charged_at_max $(cat $groups/above/memory.current)"
    echo "$2.nested_listed_at_max $(/load $2 count | awk '{ print $2 }')"
    rmmod $1 || echo "failed rmmod"
    rmdir $groups/above || echo "failed rmdir"
    log_bad
}

# limit_of MODULE FILE: allocations of a group at its memory.max reclaim its entries, and none of them fails.
limit_of() {
    insmod /$1.ko || return 1
    mkdir -p $groups/small
    echo 4M >$groups/small/memory.max
    (echo 0 >$groups/small/cgroup.procs; exec /load $2 "fill 60000") >/said
    echo "$2.limit_filled $(sed -n 's/^filled //p' /said)"
    echo "$2.limit_oom_kills $(sed -n 's/^oom_kill //p' $groups/small/memory.events)"
    echo "$2.limit_charged $(cat $groups/small/memory.current)"
    echo "$2.limit_listed $(/load $2 count | awk '{ print $2 }')"
    rmmod $1 || echo "failed rmmod"
    rmdir $groups/small || echo "failed rmdir"
    log_bad
}

# groups_of MODULE FILE: memory.max of a group reclaims from its own lists only; a removed group's entries become its parent's.
groups_of() {
    insmod /$1.ko || return 1
    mkdir -p $groups/one $groups/other
    (echo 0 >$groups/one/cgroup.procs; exec /load $2 "fill 40000") >/dev/null
    (echo 0 >$groups/other/cgroup.procs; exec /load $2 "fill 20000") >/dev/null
    echo "$2.groups_charged $(cat $groups/one/memory.current)"
    echo "$2.groups_listed $(/load $2 count | awk '{ print $2 }')"
    echo 2M >$groups/one/memory.max
    echo "$2.groups_charged_at_max $(cat $groups/one/memory.current)"
    echo "$2.groups_listed_at_max $(/load $2 count | awk '{ print $2 }')"
    echo "$2.groups_other_charged $(cat $groups/other/memory.current)"
    rmdir $groups/other || echo "failed rmdir"
    sleep 1
    echo "$2.groups_listed_after_rmdir $(/load $2 count | awk '{ print $2 }')"
    echo 2 >/proc/sys/vm/drop_caches
    echo "$2.groups_listed_after_drop $(/load $2 count | awk '{ print $2 }')"
    rmmod $1 || echo "failed rmmod"
    rmdir $groups/one
    log_bad
}

# scarce_of MODULE FILE: the start with each of its allocations failing, one at a time; then groups that come and go with one
# allocation in several failing. Inserts fail then, but the counts must be right, and nothing may be left.
scarce_of() {
    log_bad
    dmesg -c >/dev/null
    every=1
    while [ $every -lt 200 ] && ! insmod /$1.ko fail_every=$every 2>/dev/null; do
        every=$((every + 1))
    done
    rmmod $1 || echo "failed rmmod"
    echo "$2.scarce_starts_refused $((every - 1))"
    echo "$2.scarce_starts_ended $(said "$2: \(-\?[0-9]*\) allocations left\(\)" | wc -l)"
    echo "$2.scarce_starts_allocations_left $(said "$2: \(-\?[0-9]*\) allocations left\(\)" | sum)"
    log_bad
    dmesg -c >/dev/null
    rm -f /scarce
    for every in 2 3 7; do
        insmod /$1.ko || echo "failed insmod"
        echo $every >/sys/module/$1/parameters/fail_every
        number=0
        while [ $number -lt 24 ]; do
            mkdir $groups/scarce$number
            (echo 0 >$groups/scarce$number/cgroup.procs; exec /load $2 empty "fill 100" "churn 500") >>/scarce 2>&1
            number=$((number + 1))
        done
        rmdir $groups/scarce*
        echo 2 >/proc/sys/vm/drop_caches
        rmmod $1 || echo "failed rmmod"
    done
    echo "$2.scarce_loads $(said "$2: \(-\?[0-9]*\) allocations left\(\)" | wc -l)"
    echo "$2.scarce_made $(awk '$1 == "promoted" { sum += $8 } END { print sum + 0 }' /scarce)"
    echo "$2.scarce_allocations_refused $(said "$2: -\?[0-9]* allocations left, \([0-9]*\) refused\(\)" | sum)"
    echo "$2.scarce_allocations_left $(said "$2: \(-\?[0-9]*\) allocations left\(\)" | sum)"
    echo "$2.scarce_entries_left $(said "$2: \([0-9]*\) entries left\(\)" | sum)"
    echo "$2.scarce_counts_right $(said "$2: \([0-9]*\) on lists, \([0-9]*\) alive" | awk '$1 == $2 { right++ } END { print right + 0 }')"
    log_bad
}

for module in $(echo $modules | tr , ' '); do
    file=${module#cache_}
    [ "$loads" -eq 0 ] || loads_of $module $file
    # The shrinker of lowwater's lists is not called for a single group.
    [ "$loads" -eq 0 ] || [ $file = on_lowwater ] || { groups_of $module $file; nested_of $module $file; limit_of $module $file; }
    # The kernel's lists have no allocator of their own.
    [ "$loads" -eq 0 ] || [ $file = on_list_lru ] || scarce_of $module $file
done
if [ "$loads" -gt 0 ]; then
    # A shrinker of two lists, loaded by a task of a group.
    mkdir -p $groups/two
    (echo 0 >$groups/two/cgroup.procs; exec insmod /two_lists.ko)
    number=0
    while [ $number -lt 30 ]; do
        echo 2 >/proc/sys/vm/drop_caches
        number=$((number + 1))
    done
    rmmod two_lists
    rmdir $groups/two
    echo "two_lists.objects $(said 'two_lists: \([0-9]*\) objects at first\(\)')"
    echo "two_lists.objects_left $(said 'two_lists: \([0-9]*\) objects left\(\)')"
    log_bad
fi
if [ "$loads" -gt 0 ]; then
    insmod /walks.ko || echo "failed walks"
    rmmod walks
    for walk in rotate skip; do
        echo "walks.$walk $(said "walks: $walk \([0-9]*\) visits\(\)")"
        echo "walks.${walk}_at_most $(said "walks: $walk [0-9]* visits of [0-9]*, at most \([0-9]*\)\(\)")"
    done
    echo "walks.after_clear $(said 'walks: \([0-9]*\) objects after\(\)')"
    log_bad
fi
if [ -e /template.ko ] && [ "$loads" -gt 0 ]; then
    for drop in 0 2; do
        insmod /template.ko
        [ $drop = 0 ] || { echo 2 >/proc/sys/vm/drop_caches; echo 2 >/proc/sys/vm/drop_caches; }
        rmmod template
    done
    echo "template.first $(said 'template: \([0-9]*\) pages left\(\)' | head -1)"
    echo "template.after_drop $(said 'template: \([0-9]*\) pages left\(\)' | tail -1)"
    log_bad
fi

# The time of one add and del, in the same guest: the modules in turn, the minimum of the rounds. After a colon: a parameter of
# the module; its figures have the parameter's name, too.
round=0
while [ $round -lt ${rounds:-0} ]; do
    for module in $(echo $compared | tr , ' '); do
        parameter=${module#*:}
        [ $module != $parameter ] || parameter=
        module=${module%:*}
        file=${module#cache_}
        insmod /$module.ko $parameter
        # The kernel's work for a new module is done then.
        sleep 0.5
        for span in 16 1000 20000; do
            task 0 /load $file "fill 20000" "pairs 1000 $span" "pairs $pairs $span" >/said
            sed "s/.*ns_per_pair/$file${parameter:+_${parameter%=*}} $span/" /said >>/alone
        done
        rmmod $module
    done
    round=$((round + 1))
done
for span in 16 1000 20000; do
    [ ${rounds:-0} -gt 0 ] || continue
    for module in $(echo $compared | tr , ' '); do
        file=$(echo ${module#cache_} | sed 's/:/_/; s/=.*//')
        echo "$file.pair_$span $(awk -v module="$file" -v span=$span '$1 == module && $2 == span { print $3 }' /alone | sort -n | head -1)"
    done
done

# used_kib: the memory in use, without what is free at once. Of the slab allocator's pages only the objects in use count: the
# pages have room for many small objects, which would hide those of a module.
used_kib() {
    echo 3 >/proc/sys/vm/drop_caches
    sleep 1
    awk 'FILENAME ~ /slabinfo/ && FNR > 2 { objects += $2 * $4 / 1024 }
        $1 == "MemTotal:" { total = $2 } $1 == "MemFree:" { free = $2 } $1 == "Slab:" { slab = $2 }
        END { printf "%.0f", total - free - slab + objects }' /proc/meminfo /proc/slabinfo
}
# drops NAME COUNT: the microseconds of one drop_caches, by the clock of the kernel's log, the minimum of COUNT.
drops() {
    log_bad
    dmesg -c >/dev/null
    for drop in $(seq 0 $2); do
        [ $drop = 0 ] || echo 2 >/proc/sys/vm/drop_caches
        echo lw_drop >/dev/kmsg
    done
    echo "$1 $(dmesg | sed -n 's/^\[ *\([0-9.]*\)\] lw_drop$/\1/p' |
        awk 'NR > 1 { us = ($1 - last) * 1e6; if (NR == 2 || us < least) least = us } { last = $1 } END { printf "%.0f", least }')"
}
# add_three MODULE: adds an object in each of three groups, each to another cache.
add_three() {
    for number in 1 2 3; do
        (echo 0 >$groups/many$number/cgroup.procs; exec /load $1 "add $((number * 300))") | grep -q 'added 1' || echo "failed add"
    done
    [ "$(/load $1 count)" = "listed 3 alive 3" ] || echo "failed count"
}
# many MODULE: the memory and the time of drop_caches of 1,000 caches in as many groups as there are, with three objects.
many() {
    before=$(used_kib)
    insmod /$1.ko || echo "failed insmod $1"
    # Of lowwater's allocator: its groups, and with the caches.
    dmesg | sed -n "s/.*\] $1: \([0-9]*\) KiB of groups/$1.kib_of_groups \1/p; s/.*\] $1: \([0-9]*\) KiB in all/$1.kib_allocated \1/p"
    add_three $1
    echo "$1.kib $(($(used_kib) - before))"
    # That dropped the objects.
    echo "$1.left $(/load $1 count | awk '{ print $2 }')"
    drops $1.drop_us 5
    add_three $1
    drops $1.drop_live_us 1
    rmmod $1 || echo "failed rmmod"
    echo "$1.kib_left $(($(used_kib) - before))"
    log_bad
}
if [ "${many:-0}" -gt 0 ]; then
    before=$(used_kib)
    mkdir $(seq 1 $many | sed "s,^,$groups/many,")
    echo "many.groups $(ls -d $groups/many* | wc -l)"
    echo "many.groups_kib $(($(used_kib) - before))"
    drops many.drop_us 5
    # In this order: the kernel keeps the memory of a shrinker's maps for later ones, and visits them.
    many many_on_lowwater
    many many_on_list_lru
fi

echo "checks_locks $(cat /proc/lockdep_stats 2>/dev/null | awk '$1 == "debug_locks:" { on = $2 } END { print on + 0 }')"
echo "log_lines_bad $log_lines_bad"
echo "end 1"
sync
poweroff -f
