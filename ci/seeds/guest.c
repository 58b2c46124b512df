/* The loads of the reports in docs/SEEDS.md on the kernel of a guest: its init starts it as
 *
 *   guest lists GROUPS MOUNTS          memory before and after groups and mounts, which nothing uses
 *   guest containers GROUPS MOUNTS     each group with MOUNTS mounts of its own, one file on each;
 *                                      memory before, during and after
 *   guest drops COUNT                  COUNT groups, each with a file on a mount of its own; then
 *                                      five drops of all caches
 *   guest negatives NAMES DIRECTORY    lookups of names that do not exist, a watch on the directory
 *
 * It prints one JSON object. Groups are control groups of version 2, mounts are of tmpfs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define GROUPS "/sys/fs/cgroup/ct"
#define MOUNTS "/mounts"

static void check(int result, const char *what, const char *path)
{
	if (result >= 0)
		return;
	fprintf(stderr, "%s %s: %s\n", what, path, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static void put(const char *path, const char *text)
{
	int file = open(path, O_WRONLY);

	check(file, "open", path);
	check(write(file, text, strlen(text)), "write", path);
	close(file);
}

/* Returns the first number of the line that begins with `name`; 0 if there is none. */
static long number_of(const char *path, const char *name)
{
	char line[512];
	long number = 0;
	FILE *file = fopen(path, "r");

	check(file ? 0 : -1, "open", path);
	while (fgets(line, sizeof(line), file))
		if (!strncmp(line, name, strlen(name)) && strchr(" \t:", line[strlen(name)])) {
			sscanf(line + strlen(name) + strspn(line + strlen(name), ": \t"), "%ld", &number);
			break;
		}
	fclose(file);
	return number;
}

static long meminfo(const char *name)
{
	return number_of("/proc/meminfo", name);
}

/* Memory without what caches hold: the page cache of the guest's files is not part of the load. */
static void memory(const char *when)
{
	put("/proc/sys/vm/drop_caches", "3");
	printf("\"%s\":{\"used_kb\":%ld,\"slab_kb\":%ld,\"kmalloc_32\":%ld,\"kmalloc_1k\":%ld},", when,
	       meminfo("MemTotal") - meminfo("MemFree"), meminfo("Slab"),
	       number_of("/proc/slabinfo", "kmalloc-32") + number_of("/proc/slabinfo", "kmalloc-cg-32"),
	       number_of("/proc/slabinfo", "kmalloc-1k") + number_of("/proc/slabinfo", "kmalloc-cg-1k"));
}

static void make_group(int group)
{
	char path[64];

	snprintf(path, sizeof(path), GROUPS "/%d", group);
	check(mkdir(path, 0755), "mkdir", path);
}

static void mount_one(int number)
{
	char path[64];

	snprintf(path, sizeof(path), MOUNTS "/%d", number);
	check(mkdir(path, 0755), "mkdir", path);
	check(mount("none", path, "tmpfs", 0, NULL), "mount", path);
}

/* Makes a file on each of the mounts from `first`, as a task of the group. */
static void use(int group, int first, int mounts)
{
	char path[64];

	snprintf(path, sizeof(path), GROUPS "/%d/cgroup.procs", group);
	put(path, "0");
	for (int n = 0; n < mounts; n++) {
		int file;

		snprintf(path, sizeof(path), MOUNTS "/%d/file", first + n);
		file = open(path, O_CREAT | O_WRONLY, 0644);
		check(file, "create", path);
		close(file);
	}
}

static void end(int groups, int mounts)
{
	char path[64];

	put("/sys/fs/cgroup/cgroup.procs", "0");
	for (int n = 0; n < mounts; n++) {
		snprintf(path, sizeof(path), MOUNTS "/%d", n);
		check(umount(path), "umount", path);
		check(rmdir(path), "rmdir", path);
	}
	for (int n = 0; n < groups; n++) {
		snprintf(path, sizeof(path), GROUPS "/%d", n);
		check(rmdir(path), "rmdir", path);
	}
	/* Groups and their memory end in the background. */
	sleep(5);
}

static void lists(int groups, int mounts)
{
	memory("before");
	for (int n = 0; n < groups; n++)
		make_group(n);
	for (int n = 0; n < mounts; n++)
		mount_one(n);
	memory("during");
}

static void containers(int groups, int mounts)
{
	memory("before");
	for (int group = 0; group < groups; group++) {
		make_group(group);
		for (int n = 0; n < mounts; n++)
			mount_one(group * mounts + n);
		use(group, group * mounts, mounts);
	}
	memory("during");
	end(groups, groups * mounts);
	memory("after");
}

static void drops(int count)
{
	double seconds[5];

	for (int n = 0; n < count; n++) {
		make_group(n);
		mount_one(n);
		use(n, n, 1);
	}
	for (int n = 0; n < 5; n++) {
		double begin = now();

		put("/proc/sys/vm/drop_caches", "3");
		seconds[n] = now() - begin;
	}
	printf("\"seconds\":[%.6f,%.6f,%.6f,%.6f,%.6f],", seconds[0], seconds[1], seconds[2], seconds[3], seconds[4]);
}

/* Prints the negatives of the whole system: the fifth field of dentry-state. */
static void negatives_now(const char *when)
{
	long fields[6] = { 0 };
	FILE *file = fopen("/proc/sys/fs/dentry-state", "r");

	check(file ? 0 : -1, "open", "dentry-state");
	for (int n = 0; n < 6; n++)
		if (fscanf(file, "%ld", &fields[n]) != 1)
			exit(1);
	fclose(file);
	printf("\"negatives_%s\":%ld,", when, fields[4]);
}

static double watch(const char *directory)
{
	int queue = inotify_init1(0);
	double begin = now(), seconds;

	check(inotify_add_watch(queue, directory, IN_CREATE), "watch", directory);
	seconds = now() - begin;
	close(queue);
	return seconds;
}

static void negatives(int names, const char *directory)
{
	char path[256];
	struct stat status;
	double begin, seconds;
	long used;

	for (int n = 0; n < 100; n++) {
		snprintf(path, sizeof(path), "%s/positive-%d", directory, n);
		check(mkdir(path, 0755), "mkdir", path);
	}
	put("/proc/sys/vm/drop_caches", "3");
	printf("\"watch_without_s\":%.6f,", watch(directory));
	negatives_now("before");
	used = meminfo("MemTotal") - meminfo("MemFree");
	begin = now();
	for (int n = 0; n < names; n++) {
		snprintf(path, sizeof(path), "%s/missing-%d", directory, n);
		if (!stat(path, &status))
			exit(1);
	}
	seconds = now() - begin;
	negatives_now("after");
	printf("\"names\":%d,\"ns_a_lookup\":%.0f,\"kb\":%ld,", names, seconds * 1e9 / names,
	       meminfo("MemTotal") - meminfo("MemFree") - used);
	printf("\"watch_s\":%.6f,", watch(directory));
	begin = now();
	put("/proc/sys/vm/drop_caches", "2");
	printf("\"drop_s\":%.6f,", now() - begin);
	negatives_now("dropped");
}

int main(int count, char **words)
{
	const char *load = count > 2 ? words[1] : "";
	int first = count > 2 ? atoi(words[2]) : 0, second = count > 3 ? atoi(words[3]) : 0;

	if (strcmp(load, "negatives")) {
		check(mkdir(GROUPS, 0755), "mkdir", GROUPS);
		put(GROUPS "/cgroup.subtree_control", "+memory");
		check(mkdir(MOUNTS, 0755), "mkdir", MOUNTS);
	}
	printf("{");
	if (!strcmp(load, "lists"))
		lists(first, second);
	else if (!strcmp(load, "containers"))
		containers(first, second);
	else if (!strcmp(load, "drops"))
		drops(first);
	else if (!strcmp(load, "negatives"))
		negatives(first, words[3]);
	else
		return 1;
	printf("\"load\":\"%s\"}\n", load);
	return 0;
}
