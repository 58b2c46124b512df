// SPDX-License-Identifier: GPL-2.0
// A file /proc/NAME that takes commands for a Rust module. Each open file is a worker. For tests.

#include <linux/fs.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/proc_fs.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

struct lowwater_file {
	size_t worker;
	/* Protects said: pwrite(2) and io_uring do not take the lock of the file's position. */
	struct mutex lock;
	char said[96];
};

struct proc_dir_entry *lowwater_proc_create(const char *name, void *data);
void lowwater_proc_remove(struct proc_dir_entry *entry);
/* proc.rs */
size_t lowwater_proc_open(void *data);
int lowwater_proc_command(void *data, size_t worker, const char *text, size_t len, char *said, size_t room);

static int proc_open(struct inode *inode, struct file *file)
{
	struct lowwater_file *mine = kzalloc(sizeof(*mine), GFP_KERNEL);

	if (!mine)
		return -ENOMEM;
	mutex_init(&mine->lock);
	mine->worker = lowwater_proc_open(pde_data(inode));
	file->private_data = mine;
	return 0;
}

static int proc_release(struct inode *inode, struct file *file)
{
	kfree(file->private_data);
	return 0;
}

static ssize_t proc_write(struct file *file, const char __user *from, size_t len, loff_t *pos)
{
	struct lowwater_file *mine = file->private_data;
	char text[64];
	int err;

	if (len > sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, from, len))
		return -EFAULT;
	/* The next read begins at the start of the result. */
	*pos = 0;
	mutex_lock(&mine->lock);
	err = lowwater_proc_command(pde_data(file_inode(file)), mine->worker, text, len, mine->said, sizeof(mine->said));
	mutex_unlock(&mine->lock);
	return err ?: len;
}

static ssize_t proc_read(struct file *file, char __user *to, size_t len, loff_t *pos)
{
	struct lowwater_file *mine = file->private_data;
	ssize_t read;

	mutex_lock(&mine->lock);
	read = simple_read_from_buffer(to, len, pos, mine->said, strnlen(mine->said, sizeof(mine->said)));
	mutex_unlock(&mine->lock);
	return read;
}

static const struct proc_ops ops = {
	.proc_open = proc_open,
	.proc_release = proc_release,
	.proc_read = proc_read,
	.proc_write = proc_write,
	.proc_lseek = noop_llseek,
};

struct proc_dir_entry *lowwater_proc_create(const char *name, void *data)
{
	return proc_create_data(name, 0600, NULL, &ops, data);
}

/*
 * An open file of /proc holds no reference on the module, so rmmod succeeds while tasks have this one open. proc_remove()
 * waits for calls that run, and releases the open files; later calls on them return -EIO without entering the module.
 */
void lowwater_proc_remove(struct proc_dir_entry *entry)
{
	proc_remove(entry);
}
