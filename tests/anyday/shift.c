/* Shift the wall clock, and the times of files with it, by RMQCTL_CLOCK_SHIFT seconds: for LD_PRELOAD.

   Times of a file are shifted if its inode was changed after the shift began (RMQCTL_CLOCK_BEGAN, real seconds since
   1970): programs and caches that were there before keep their times, so that nothing is compiled again.
   Monotonic clocks and relative waits stay real. libfaketime is not used for whole test runs: it shifts all files or
   none, and makes each read of the clock four times slower. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <utime.h>

static long long shift, began;

__attribute__((constructor)) static void read_shift(void) {
    const char *given = getenv("RMQCTL_CLOCK_SHIFT"), *since = getenv("RMQCTL_CLOCK_BEGAN");
    shift = given ? atoll(given) : 0;
    began = since ? atoll(since) : 0;
}

/* the next definition of a function: that of libc */
#define NEXT(name)                                                  \
    ({                                                              \
        static __typeof__(name) *next_;                             \
        if (next_ == NULL) next_ = dlsym(RTLD_NEXT, #name);         \
        next_;                                                      \
    })

/* clocks */

static int is_wall(clockid_t clock) { return clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = NEXT(clock_gettime)(clock, now);
    if (result == 0 && is_wall(clock)) now->tv_sec += shift;
    return result;
}

int timespec_get(struct timespec *now, int base) {
    int result = NEXT(timespec_get)(now, base);
    if (result == TIME_UTC) now->tv_sec += shift;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int result = NEXT(gettimeofday)(now, zone);
    if (result == 0 && now != NULL) now->tv_sec += shift;
    return result;
}

time_t time(time_t *stored) {
    time_t now = NEXT(time)(NULL) + shift;
    if (stored != NULL) *stored = now;
    return now;
}

/* waits until a time of the wall clock */

static struct timespec real(const struct timespec *until) {
    return (struct timespec){until->tv_sec - shift, until->tv_nsec};
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *left) {
    struct timespec moved = (flags & TIMER_ABSTIME) && is_wall(clock) ? real(until) : *until;
    return NEXT(clock_nanosleep)(clock, flags, &moved, left);
}

int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until) {
    static __typeof__(pthread_cond_timedwait) *next;
    /* without a version, dlsym finds a function for another layout of conditions */
    if (next == NULL) next = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    if (next == NULL) next = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    /* glibc keeps the clock of a condition in this bit */
    struct timespec moved = condition->__data.__wrefs & 2 ? *until : real(until);
    return next(condition, mutex, &moved);
}

int pthread_cond_clockwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex, clockid_t clock,
                           const struct timespec *restrict until) {
    struct timespec moved = is_wall(clock) ? real(until) : *until;
    return NEXT(pthread_cond_clockwait)(condition, mutex, clock, &moved);
}

int pthread_mutex_timedlock(pthread_mutex_t *restrict mutex, const struct timespec *restrict until) {
    struct timespec moved = real(until);
    return NEXT(pthread_mutex_timedlock)(mutex, &moved);
}

int sem_timedwait(sem_t *restrict semaphore, const struct timespec *restrict until) {
    struct timespec moved = real(until);
    return NEXT(sem_timedwait)(semaphore, &moved);
}

int sem_clockwait(sem_t *restrict semaphore, clockid_t clock, const struct timespec *restrict until) {
    struct timespec moved = is_wall(clock) ? real(until) : *until;
    return NEXT(sem_clockwait)(semaphore, clock, &moved);
}

/* times of files that are read; __xstat and the like are those of programs made for a glibc before 2.33 */

static int shifted(int result, struct stat *found) {
    if (result == 0 && found->st_ctim.tv_sec >= began) {
        found->st_atim.tv_sec += shift;
        found->st_mtim.tv_sec += shift;
        found->st_ctim.tv_sec += shift;
    }
    return result;
}

_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "times of files are shifted on 64-bit machines only");
#define PATH const char *restrict path
#define FOUND(type) struct type *restrict found

#define READS(suffix, type)                                                                                         \
    int stat##suffix(PATH, FOUND(type)) { return shifted(NEXT(stat)(path, (void *)found), (void *)found); }         \
    int lstat##suffix(PATH, FOUND(type)) { return shifted(NEXT(lstat)(path, (void *)found), (void *)found); }       \
    int fstat##suffix(int fd, FOUND(type)) { return shifted(NEXT(fstat)(fd, (void *)found), (void *)found); }       \
    int fstatat##suffix(int fd, PATH, FOUND(type), int flags) {                                                     \
        return shifted(NEXT(fstatat)(fd, path, (void *)found, flags), (void *)found);                               \
    }                                                                                                               \
    int __xstat##suffix(int version, PATH, FOUND(type)) { return (void)version, stat##suffix(path, found); }        \
    int __lxstat##suffix(int version, PATH, FOUND(type)) { return (void)version, lstat##suffix(path, found); }      \
    int __fxstat##suffix(int version, int fd, FOUND(type)) { return (void)version, fstat##suffix(fd, found); }      \
    int __fxstatat##suffix(int version, int fd, PATH, FOUND(type), int flags) {                                     \
        return (void)version, fstatat##suffix(fd, path, found, flags);                                              \
    }

READS(, stat)
READS(64, stat64)

int statx(int fd, PATH, int flags, unsigned mask, FOUND(statx)) {
    int result = NEXT(statx)(fd, path, flags, mask | STATX_CTIME, found);
    if (result == 0 && found->stx_ctime.tv_sec >= began) {
        found->stx_atime.tv_sec += shift;
        found->stx_mtime.tv_sec += shift;
        found->stx_ctime.tv_sec += shift;
        found->stx_btime.tv_sec += shift;
    }
    return result;
}

/* times of files that are set */

static const struct timespec *real_pair(const struct timespec given[2], struct timespec moved[2]) {
    if (given == NULL) return NULL;
    for (int i = 0; i < 2; i++) {
        int is_time = given[i].tv_nsec != UTIME_NOW && given[i].tv_nsec != UTIME_OMIT;
        moved[i] = is_time ? real(&given[i]) : given[i];
    }
    return moved;
}

int utimensat(int fd, const char *path, const struct timespec times[2], int flags) {
    struct timespec moved[2];
    return NEXT(utimensat)(fd, path, real_pair(times, moved), flags);
}

int futimens(int fd, const struct timespec times[2]) {
    struct timespec moved[2];
    return NEXT(futimens)(fd, real_pair(times, moved));
}

static const struct timeval *real_values(const struct timeval given[2], struct timeval moved[2]) {
    if (given == NULL) return NULL;
    for (int i = 0; i < 2; i++) moved[i] = (struct timeval){given[i].tv_sec - shift, given[i].tv_usec};
    return moved;
}

int utimes(const char *path, const struct timeval times[2]) {
    struct timeval moved[2];
    return NEXT(utimes)(path, real_values(times, moved));
}

int lutimes(const char *path, const struct timeval times[2]) {
    struct timeval moved[2];
    return NEXT(lutimes)(path, real_values(times, moved));
}

int futimes(int fd, const struct timeval times[2]) {
    struct timeval moved[2];
    return NEXT(futimes)(fd, real_values(times, moved));
}

int utime(const char *path, const struct utimbuf *times) {
    struct utimbuf moved;
    if (times != NULL) moved = (struct utimbuf){times->actime - shift, times->modtime - shift};
    return NEXT(utime)(path, times == NULL ? NULL : &moved);
}
