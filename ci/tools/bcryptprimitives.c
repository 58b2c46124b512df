/*
 * The one function of Windows' bcryptprimitives.dll that Rust's library calls: random bytes. For
 * ci/platforms.sh, as wine 8 has no such library. The bytes are those of wine's RtlGenRandom.
 *
 * A change must ensure that the name and the types are those of Windows.
 */
unsigned char __stdcall SystemFunction036(void *buffer, unsigned long length);

__declspec(dllexport) int __stdcall ProcessPrng(unsigned char *data, unsigned long long length)
{
	return SystemFunction036(data, (unsigned long)length);
}
