// GLib's mutexes and conditions by pthreads, for ThreadSanitizer, which cannot see GLib's own, made of futexes. Loaded
// before GLib (LD_PRELOAD). What GLib locks inside itself stays as it is, but what is handed to its pools of threads is
// told to be so, and who lets go of an object is told to have done so before it dies.
// SPDX-License-Identifier: LGPL-2.1-or-later
#include <dlfcn.h>
#include <glib.h>
#include <pthread.h>
#include <sanitizer/tsan_interface.h>

#include <atomic>

namespace {

// The object behind a GMutex or GCond, made with its first use: a statically allocated one has no other beginning.
template <typename T, typename Init>
T* Behind(gpointer* slot, Init init) {
  auto* pointer = reinterpret_cast<std::atomic<T*>*>(slot);
  T* object = pointer->load(std::memory_order_acquire);
  if (object) return object;
  T* fresh = new T;
  init(fresh);
  if (pointer->compare_exchange_strong(object, fresh)) return fresh;
  delete fresh;
  return object;
}

pthread_mutex_t* Native(GMutex* mutex) {
  return Behind<pthread_mutex_t>(&mutex->p, [](pthread_mutex_t* m) { pthread_mutex_init(m, nullptr); });
}

pthread_cond_t* Native(GCond* cond) {
  return Behind<pthread_cond_t>(&cond->p, [](pthread_cond_t* c) {
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attributes);
  });
}

template <typename F>
F Real(const char* name, F) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

// What a pool was made for. Kept for good, as there are few pools.
struct PoolWork {
  GFunc function;
  gpointer user_data;
};

void RunPoolWork(gpointer data, gpointer work) {
  __tsan_acquire(data);
  static_cast<PoolWork*>(work)->function(data, static_cast<PoolWork*>(work)->user_data);
}

// References are counted with atomics in libraries that are not instrumented: all that was done with an object before a
// reference was given back happened before what is done after the next one, which may be the last.
void NoteUnref(gpointer object) {
  __tsan_acquire(object);
  __tsan_release(object);
}

}  // namespace

extern "C" {
void g_object_unref(gpointer object) {
  static const auto real = Real("g_object_unref", g_object_unref);
  NoteUnref(object);
  real(object);
}
void gst_mini_object_unref(gpointer object) {
  static const auto real = Real("gst_mini_object_unref", gst_mini_object_unref);
  NoteUnref(object);
  real(object);
}
GThreadPool* g_thread_pool_new(GFunc function, gpointer user_data, gint most, gboolean exclusive, GError** error) {
  static const auto real = Real("g_thread_pool_new", g_thread_pool_new);
  return real(RunPoolWork, new PoolWork{function, user_data}, most, exclusive, error);
}
gboolean g_thread_pool_push(GThreadPool* pool, gpointer data, GError** error) {
  static const auto real = Real("g_thread_pool_push", g_thread_pool_push);
  __tsan_release(data);
  return real(pool, data, error);
}
void g_mutex_init(GMutex* mutex) { mutex->p = nullptr; }
// Who clears a lock knows by a count of references that cannot be seen (that of a clock's entry, for one) that all
// others have done with it, which is told here.
void g_mutex_clear(GMutex* mutex) {
  __tsan_acquire(mutex);
  pthread_mutex_destroy(Native(mutex));
  delete Native(mutex);
  mutex->p = nullptr;
}
void g_mutex_lock(GMutex* mutex) { pthread_mutex_lock(Native(mutex)); }
void g_mutex_unlock(GMutex* mutex) {
  pthread_mutex_unlock(Native(mutex));
  __tsan_release(mutex);
}
gboolean g_mutex_trylock(GMutex* mutex) { return pthread_mutex_trylock(Native(mutex)) == 0; }
void g_cond_init(GCond* cond) { cond->p = nullptr; }
void g_cond_clear(GCond* cond) {
  __tsan_acquire(cond);
  pthread_cond_destroy(Native(cond));
  delete Native(cond);
  cond->p = nullptr;
}
void g_cond_wait(GCond* cond, GMutex* mutex) {
  pthread_cond_wait(Native(cond), Native(mutex));
  __tsan_release(cond);
}
void g_cond_signal(GCond* cond) {
  pthread_cond_signal(Native(cond));
  __tsan_release(cond);
}
void g_cond_broadcast(GCond* cond) {
  pthread_cond_broadcast(Native(cond));
  __tsan_release(cond);
}
gboolean g_cond_wait_until(GCond* cond, GMutex* mutex, gint64 end_time_us) {
  const timespec end = {static_cast<time_t>(end_time_us / 1000000), static_cast<long>(end_time_us % 1000000 * 1000)};
  const bool signalled = pthread_cond_timedwait(Native(cond), Native(mutex), &end) == 0;
  __tsan_release(cond);
  return signalled;
}
}
