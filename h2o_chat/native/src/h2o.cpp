#include "h2o.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>

#include "model.h"
#include "pool.h"

// build.py says H2O_PLAIN_ONLY where it compiles no other form.
#if defined(H2O_PLAIN_ONLY)
#elif defined(__aarch64__)
#define H2O_ARM
#if defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif
#else
#define H2O_X86
#include <cpuid.h>
#if defined(__linux__) && !defined(H2O_NO_AMX)  // build.py says it where the compiler knows no AMX
#define H2O_AMX
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace {

enum { kPlain = 1, kAvx2 = 2, kAvx512 = 4, kNeon = 8, kAmx = 16 };

const Form *form_of(int32_t form) {
#if defined(H2O_AMX)
    if (form == kAmx) return &form_amx;
#endif
#if defined(H2O_X86)
    if (form == kAvx512) return &form_avx512;
    if (form == kAvx2) return &form_avx2;
#elif defined(H2O_ARM)
    if (form == kNeon) return &form_neon;
#endif
    return form == kPlain ? &form_plain : nullptr;
}

int rounded_up(int number, int to) { return (number + to - 1) / to * to; }

// Numbers that begin at a multiple of 64 bytes; zeros at first.
template <class T>
class Room {
  public:
    Room() = default;
    Room(const Room &) = delete;
    Room &operator=(const Room &) = delete;
    ~Room() { free(); }

    // Numbers that were there stay only if there is room for as many already.
    bool make(size_t count) {
        if (count <= count_) return true;
        free();
        const size_t bytes = (count * sizeof(T) + 127) / 64 * 64;
        at_ = static_cast<T *>(::operator new(bytes, kAlignment, std::nothrow));  // Windows has no aligned_alloc
        if (at_) std::memset(at_, 0, bytes);
        count_ = at_ ? count : 0;
        return at_ != nullptr;
    }

    T *get() const { return at_; }

  private:
    static constexpr std::align_val_t kAlignment{64};
    T *at_ = nullptr;
    size_t count_ = 0;

    void free() { ::operator delete(at_, kAlignment); }
};

}  // namespace

struct h2o_model {
    h2o_frame frame;
    std::unique_ptr<h2o_layer[]> layers;
    std::unique_ptr<h2o_rope[]> ropes;
    int32_t form;
    const Form *kernels;
    Pool *pool = nullptr;

    int tokens = 0, slots = 0;  // what there is room for
    int widest = 0, most_pairs = 0;
    size_t own_bytes = 0;
    Room<float> x, qkv, attended, gated, routed, weights, scales, cosines, sines, edge_cosines, edge_sines;
    Room<int8_t> numbers;
    Room<int32_t> sums, rows, index, takers;
    Experts experts;
    Room<int64_t> ids;
    Room<char> own;
    int turned = 0;  // indices in the tables
    Room<float> table_cosines, table_sines, ranked, numbers_held, passed;

    ~h2o_model() {
        if (pool) pool_close(pool);
    }
};

// Cosines and sines of every rope's pairs at these indices, as torch computes them in fp32. [ropes, N, pairs]
static void angles(const h2o_model &model, int tokens, const int32_t *index, bool scaled, float *cosines,
                   float *sines) {
    for (int number = 0; number < model.frame.rope_count; ++number) {
        const h2o_rope &rope = model.ropes[number];
        const float scale = scaled ? rope.scale : 1.0f;
        for (int token = 0; token < tokens; ++token) {
            const ptrdiff_t at = (static_cast<ptrdiff_t>(number) * tokens + token) * model.most_pairs;
            for (int pair = 0; pair < rope.pairs; ++pair) {
                const float angle = static_cast<float>(index[token]) * rope.inv_freq[pair];
                cosines[at + pair] = std::cos(angle) * scale;
                sines[at + pair] = std::sin(angle) * scale;
            }
        }
    }
}

static Job job_of(h2o_model &model, Team &team, int tokens) {
    Job job = {};
    job.frame = &model.frame;
    job.team = &team;
    job.tokens = tokens;
    job.x = model.x.get();
    job.x_stride = model.frame.layers[0].qkv[0].columns;
    job.qkv = model.qkv.get();
    job.attended = model.attended.get();
    job.gated = model.gated.get();
    job.routed = model.routed.get();
    job.experts = &model.experts;
    job.takers = model.takers.get();
    job.weights = model.weights.get();
    job.weights_stride = rounded_up(model.slots, 16);
    job.logits_stride = model.frame.vocabulary;
    job.numbers = model.numbers.get();
    job.scales = model.scales.get();
    job.sums = model.sums.get();
    job.own = model.own.get();
    job.own_bytes = model.own_bytes;
    job.cosines = model.cosines.get();
    job.sines = model.sines.get();
    job.edge_cosines = model.edge_cosines.get();
    job.edge_sines = model.edge_sines.get();
    job.most_pairs = model.most_pairs;
    return job;
}

struct Call {
    void (*function)(Job &, int);
    Job *job;
};

static void work(void *call, int thread) {
    const Call &one = *static_cast<Call *>(call);
    one.function(*one.job, thread);
}

static void run(h2o_model &model, void (*function)(Job &, int), Job &job) {
    Call call = {function, &job};
    pool_run(model.pool, *job.team, work, &call);
}

// x of the caller [N, hidden] and ours [N, stride]; columns behind `size` become 0: a conversation whose numbers
// overflowed may have left NaN there.
static void copy_rows(const float *from, int from_stride, float *to, int to_stride, int tokens, int size) {
    for (int token = 0; token < tokens; ++token) {
        float *row = to + static_cast<ptrdiff_t>(token) * to_stride;
        std::memcpy(row, from + static_cast<ptrdiff_t>(token) * from_stride, sizeof(float) * size);
        std::fill(row + size, row + std::max(size, to_stride), 0.0f);
    }
}

#if defined(H2O_AMX)
// The system saves 8 kB of tiles for a program that asked for it. It says no where a signal's stack has no room for them.
static bool may_use_tiles() { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }  // ARCH_REQ_XCOMP_PERM, XTILEDATA
#else
static bool may_use_tiles() { return false; }
#endif

#if defined(H2O_X86)
// Asked of the processor: zig's __builtin_cpu_supports knows none of these, and Clang 14's not F16C.
static int32_t x86_forms() {
    unsigned a, b, c, d, saved, high;
    const unsigned older = bit_FMA | bit_F16C | bit_OSXSAVE;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & older) != older) return 0;
    __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));  // registers that the system keeps for each program
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2) || (saved & 0x06) != 0x06) return 0;
    const unsigned newer = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    const bool has_avx512 = (b & newer) == newer && (c & bit_AVX512VNNI) && (saved & 0xe6) == 0xe6;
    const unsigned tiles = 1u << 24 | 1u << 25;  // AMX-TILE, AMX-INT8: older headers lack these names
    const bool has_amx = has_avx512 && (d & tiles) == tiles && (saved & 0x60000) == 0x60000 && may_use_tiles();
    return kAvx2 | (has_avx512 ? kAvx512 : 0) | (has_amx ? kAmx : 0);
}
#elif defined(H2O_ARM)
// Asked of the system: the processor tells it to no program. False where it is not known how to ask.
static bool has_dot_products() {
#if defined(__linux__)
    return getauxval(AT_HWCAP) & 1ul << 20;  // HWCAP_ASIMDDP, which older headers lack
#elif defined(__APPLE__)
    int there = 0;
    size_t size = sizeof there;
    return sysctlbyname("hw.optional.arm.FEAT_DotProd", &there, &size, nullptr, 0) == 0 && there;
#else
    return false;
#endif
}
#endif

int32_t h2o_forms(void) {
    int32_t forms = kPlain;
#if defined(H2O_X86)
    forms |= x86_forms();
#elif defined(H2O_ARM)
    if (has_dot_products()) forms |= kNeon;
#endif
    return forms;
}

h2o_model *h2o_open(const h2o_frame *frame, int32_t form, int32_t threads) {
    const int32_t forms = h2o_forms();
    if (!form)  // the fastest has the highest bit
        for (const int32_t one : {kPlain, kAvx2, kAvx512, kNeon, kAmx}) form = forms & one ? one : form;
    if (!(forms & form) || !form_of(form)) return nullptr;
    std::unique_ptr<h2o_model> model(new (std::nothrow) h2o_model);
    if (!model) return nullptr;
    model->frame = *frame;
    model->layers.reset(new (std::nothrow) h2o_layer[frame->layer_count]);
    model->ropes.reset(new (std::nothrow) h2o_rope[frame->rope_count + 1]);
    if (!model->layers || !model->ropes) return nullptr;
    std::copy(frame->layers, frame->layers + frame->layer_count, model->layers.get());
    std::copy(frame->ropes, frame->ropes + frame->rope_count, model->ropes.get());
    model->frame.layers = model->layers.get();
    model->frame.ropes = model->ropes.get();
    model->form = form;
    model->kernels = form_of(form);
    const h2o_layer &layer = model->layers[0];
    const int wide = layer.mlp ? layer.mlp->down.columns : 0;  // kernels without weights have none
    model->widest = std::max({layer.qkv[0].columns, layer.out.columns, wide, frame->head_size});
    for (int i = 0; i < frame->rope_count; ++i) model->most_pairs = std::max(model->most_pairs, frame->ropes[i].pairs);
    model->own_bytes = static_cast<size_t>(model->widest) * 16;
    threads = std::max(threads, 1);
    model->pool = pool_open(threads);
    if (!model->pool || !model->own.make(model->own_bytes * threads) || h2o_reserve(model.get(), 1, 16)) return nullptr;
    return model.release();
}

int32_t h2o_borrow(h2o_model *model, const h2o_lender *lender, int32_t threads) {
    threads = std::max(threads, 1);
    if (!model->own.make(model->own_bytes * threads)) return 1;
    pool_borrow(model->pool, *lender, threads);
    return 0;
}

void h2o_close(h2o_model *model) { delete model; }

int32_t h2o_form(const h2o_model *model) { return model->form; }

double h2o_waited_ms(const h2o_model *model) { return pool_waited_ms(model->pool); }

int32_t h2o_reserve(h2o_model *model, int32_t tokens, int32_t slots) {
    if (tokens <= model->tokens && slots <= model->slots) return 0;
    const size_t n = std::max(tokens, model->tokens);
    const int most_slots = std::max(slots, model->slots);
    const h2o_layer &layer = model->layers[0];
    const size_t pairs = n * (model->frame.rope_count + 1) * model->most_pairs;
    const size_t weights = n * model->frame.heads * rounded_up(most_slots, 16);
    const size_t takers = Expert::takers(model->frame, n), gated = model->frame.experts ? takers : n;
    const size_t wide = layer.mlp ? layer.mlp->down.columns : 0;
    const size_t numbers = std::max(static_cast<size_t>(rounded_up(static_cast<int>(n), kWidth)) * model->widest,
                                    takers * std::max(wide, static_cast<size_t>(layer.qkv[0].columns)));
    const bool made = model->x.make(n * layer.qkv[0].columns) && model->qkv.make(n * std::max(Sizes(model->frame).rows, layer.qkv[0].columns)) &&
                      model->attended.make(n * layer.out.columns) && model->gated.make(gated * wide) &&
                      model->routed.make(n * rounded_up(model->frame.experts, 16)) && model->takers.make(takers) &&
                      model->weights.make(weights) && model->numbers.make(2 * numbers) &&
                      model->scales.make(numbers / 32) && model->sums.make(numbers / 16) &&
                      model->cosines.make(pairs) && model->sines.make(pairs) && model->edge_cosines.make(pairs) &&
                      model->edge_sines.make(pairs) && model->rows.make(n) && model->index.make(2 * n) && model->ids.make(n);
    model->tokens = made ? static_cast<int>(n) : 0;
    model->slots = made ? most_slots : 0;
    return !made;
}

// No table reaches farther: a file that was opened may say any position.
constexpr int64_t kFarthest = 1 << 28;

// Cosines and sines of all positions up to `highest`. False: no memory, or a position that no conversation reaches.
static bool make_tables(h2o_model &model, int64_t highest) {
    if (highest < model.turned) return true;
    if (highest > kFarthest) return false;
    const int count = std::max(1024, rounded_up(static_cast<int>(highest) + 1, 1024) / 2 * 3);
    const size_t pairs = static_cast<size_t>(count) * std::max(1, model.frame.rope_count) * model.most_pairs;
    model.turned = 0;
    if (!model.table_cosines.make(pairs) || !model.table_sines.make(pairs)) return false;
    Room<int32_t> index;
    if (!index.make(count)) return false;
    for (int at = 0; at < count; ++at) index.get()[at] = at;
    angles(model, count, index.get(), false, model.table_cosines.get(), model.table_sines.get());
    model.turned = count;
    return true;
}

// Room for keys and values as numbers, and the tables that turn them. False: no memory.
static bool make_ready_for_bytes(h2o_model &model, const h2o_step &step, Job &job) {
    const size_t held = static_cast<size_t>(pool_threads(model.pool)) * (kUnpacked * model.frame.head_size + kApart);
    if (!make_tables(model, step.farthest) || !model.numbers_held.make(held)) return false;
    job.numbers_held = model.numbers_held.get();
    job.table_cosines = model.table_cosines.get();
    job.table_sines = model.table_sines.get();
    job.table_pairs = static_cast<int64_t>(model.turned) * model.most_pairs;
    return true;
}

int32_t h2o_decode(h2o_model *model, const h2o_step *step, float *logits) {
    int most_used = 0;
    for (int layer = 0; layer < model->frame.layer_count; ++layer)
        most_used = std::max(most_used, step->slots[layer].used);
    if (h2o_reserve(model, step->rows, most_used)) return 1;
    int tokens = 0;
    int32_t *index = model->index.get(), *edge = index + step->rows;
    for (int row = 0; row < step->rows; ++row) {
        if (step->positions[row] < 0) continue;
        model->rows.get()[tokens] = row;
        model->ids.get()[tokens] = step->ids[row];
        index[tokens] = step->index[row];
        edge[tokens++] = step->edge[row];
    }
    if (!tokens) return 0;
    angles(*model, tokens, index, true, model->cosines.get(), model->sines.get());
    if (step->clamps) angles(*model, tokens, edge, false, model->edge_cosines.get(), model->edge_sines.get());
    Team team;
    Job job = job_of(*model, team, tokens);
    job.step = step;
    job.rows = model->rows.get();
    job.ids = model->ids.get();
    job.logits = logits;
    if (step->kv_bits && !make_ready_for_bytes(*model, *step, job)) return 1;
    run(*model, model->kernels->decode, job);
    return 0;
}

int32_t h2o_change(h2o_model *model, int32_t layers, int32_t rows, int32_t value_rows, int32_t slots, int32_t kv_bits,
                   const float *score, const void *values, float *changes) {
    const h2o_frame &frame = model->frame;
    Change of = {};
    of.layers = layers;
    of.rows = rows;
    of.value_rows = value_rows;
    of.heads = frame.kv_heads;
    of.slots = slots;
    of.groups = frame.heads / frame.kv_heads;
    of.size = frame.head_size;
    of.stride = rounded_up(slots, 16);
    of.output = rounded_up(of.groups * of.size, 16);
    of.bits = kv_bits;
    of.score = score;
    of.values = values;
    of.changes = changes;
    const int64_t unpacked = kv_bits ? of.slots * static_cast<int64_t>(of.size) : 0;
    of.own_floats = 2 * (of.groups + 1) * static_cast<int64_t>(of.stride) + of.output + unpacked;
    if (!model->ranked.make(of.own_floats * pool_threads(model->pool))) return 1;
    of.own = model->ranked.get();
    Team team;
    Job job = job_of(*model, team, 1);
    job.change = &of;
    run(*model, model->kernels->change, job);
    return 0;
}

int32_t h2o_embed(h2o_model *model, int32_t tokens, const int64_t *ids, float *x) {
    if (h2o_reserve(model, tokens, 1)) return 1;
    Team team;
    Job job = job_of(*model, team, tokens);
    job.ids = ids;
    run(*model, model->kernels->embed, job);
    copy_rows(job.x, job.x_stride, x, model->frame.hidden, tokens, model->frame.hidden);
    return 0;
}

int32_t h2o_turns(h2o_model *model, int32_t tokens, const int32_t *index) {
    if (h2o_reserve(model, tokens, 1)) return 1;
    angles(*model, tokens, index, true, model->cosines.get(), model->sines.get());
    return 0;
}

int32_t h2o_before(h2o_model *model, int32_t layer, int32_t tokens, const float *x, float *queries, float *keys,
                   float *values) {
    if (h2o_reserve(model, tokens, 1)) return 1;
    Team team;
    Job job = job_of(*model, team, tokens);
    copy_rows(x, model->frame.hidden, job.x, job.x_stride, tokens, model->frame.hidden);
    job.layer = layer;
    job.queries = queries;
    job.keys = keys;
    job.values = values;
    run(*model, model->kernels->before, job);
    return 0;
}

// Decay of each query's contribution at the end of the pass: `rate` for each later query.
static void what_is_left(const h2o_pass &of, float rate, float share, float *left) {
    for (int row = 0; row < of.rows; ++row) {
        double now = share;
        for (int query = of.count[row] - 1; query >= 0; --query, now *= rate)
            left[static_cast<ptrdiff_t>(row) * of.tokens + query] = static_cast<float>(now);
    }
}

int32_t h2o_attend(h2o_model *model, const h2o_pass *of) {
    const h2o_frame &frame = model->frame;
    const int rope = model->layers[of->layer].rope, size = frame.head_size;
    Pass pass = {};
    pass.of = of;
    pass.stride = rounded_up(of->most_used + of->tokens, 32);
    pass.own_floats = 24 * static_cast<int64_t>(size) + 10 * static_cast<int64_t>(pass.stride);
    const int64_t keys = static_cast<int64_t>(of->rows) * frame.kv_heads * pass.stride;
    const int64_t left = 2 * static_cast<int64_t>(of->rows) * of->tokens;
    int64_t farthest = 0;
    for (int row = 0; row < of->rows; ++row) {
        const int64_t by = static_cast<int64_t>(of->edge) - of->index[row];
        farthest = std::max({farthest, std::abs(by), std::abs(by - of->tokens)});
    }
    const int threads = pool_threads(model->pool);
    if (of->clamps && !make_tables(*model, farthest)) return 1;
    const int64_t values = static_cast<int64_t>(of->rows) * frame.kv_heads * of->tokens * size;
    if (!model->passed.make(keys * (size + 2) + values + left + pass.own_floats * threads)) return 1;
    pass.tiles = model->passed.get();
    pass.values = pass.tiles + keys * size;
    pass.at = pass.values + values;
    pass.clamped = pass.at + keys;
    pass.own = pass.clamped + keys;
    pass.left = pass.own + pass.own_floats * threads;
    what_is_left(*of, of->decay_factor, 1.0f, pass.left);
    const float share = (1.0f - of->lately_decay) / static_cast<float>(frame.heads / frame.kv_heads);
    what_is_left(*of, of->lately_decay, share, pass.left + left / 2);
    if (rope >= 0) {
        const ptrdiff_t at = static_cast<ptrdiff_t>(rope) * model->turned * model->most_pairs;
        pass.cosines = model->table_cosines.get() + at;
        pass.sines = model->table_sines.get() + at;
    }
    Team team;
    Job job = job_of(*model, team, of->tokens);
    job.pass = &pass;
    run(*model, model->kernels->attend_pass, job);
    return 0;
}

int32_t h2o_after(h2o_model *model, int32_t layer, int32_t tokens, const float *attended, float *x) {
    if (h2o_reserve(model, tokens, 1)) return 1;
    Team team;
    Job job = job_of(*model, team, tokens);
    copy_rows(x, model->frame.hidden, job.x, job.x_stride, tokens, model->frame.hidden);
    job.layer = layer;
    job.in = attended;
    run(*model, model->kernels->after, job);
    copy_rows(job.x, job.x_stride, x, model->frame.hidden, tokens, model->frame.hidden);
    return 0;
}

int32_t h2o_head(h2o_model *model, int32_t tokens, const float *x, float *logits) {
    if (h2o_reserve(model, tokens, 1)) return 1;
    Team team;
    Job job = job_of(*model, team, tokens);
    copy_rows(x, model->frame.hidden, job.x, job.x_stride, tokens, model->frame.hidden);
    job.logits = logits;
    run(*model, model->kernels->head, job);
    return 0;
}
