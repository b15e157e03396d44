// Data of a call: the model's frame, its buffers and, for a decoded token, the caller's step.

#pragma once

#include <cstddef>
#include <cstdint>

#include "h2o.h"
#include "team.h"

constexpr int kWidth = 16;  // tokens whose groups lie beside each other

// Rounded activations of N tokens, in groups of 32, each with a scale and the sums of its first and last 16 numbers. By
// blocks of 16 tokens: [N / 16, columns / 32, width], so that what some tokens are multiplied with at once lies together.
// Beside weights of 4 to 6 bits a number is one byte. Beside those of 8 bits it has two, which a form lays out as it likes
// within the 64 bytes of a group.
struct Rounded {
    int8_t *numbers;
    float *scales;
    int32_t *sums;  // [..., 2]
    int columns;
    int width;  // tokens of a block: 16, or N where those are fewer
    int bytes;  // of a group: 32 or 64

    // A view that begins with this token and goes on with those of its block.
    Rounded of(int token) const {
        const ptrdiff_t at = static_cast<ptrdiff_t>(token / kWidth) * kWidth * (columns / 32) + token % kWidth;
        return {numbers + at * bytes, scales + at, sums + 2 * at, columns, width, bytes};
    }

    // A view that begins with the next group.
    Rounded next() const {
        return {numbers + width * bytes, scales + width, sums + 2 * width, columns, width, bytes};
    }
};

constexpr int kMostExperts = 1024;

// The tokens that chose an expert stand together in `Job.takers`, and so do their numbers. Sixteen and more begin a block
// of their own, and fill their last one.
struct Expert {
    int number, first, count;

    // Room for the tokens of all experts.
    static size_t takers(const h2o_frame &frame, size_t tokens) {
        const size_t all = tokens * frame.chosen, blocks = all / kWidth, most = frame.experts;
        return all + (kWidth - 1) * (blocks < most ? blocks : most);
    }
};

// The experts of a layer that any token chose, in rising order.
struct Experts {
    int count;
    Expert all[kMostExperts];
};

constexpr int kUnpacked = 16;  // slots whose values are summed at a time, or unpacked
// Floats between what two threads write all the time: a processor fetches lines ahead, also those that another one writes.
constexpr int kApart = 1024;

// Scores and values of L layers and some rows, see h2o_change.
struct Change {
    int layers, rows, value_rows, heads, slots, groups, size;
    int stride;           // slots rounded up to 16
    int output;           // G * D rounded up to 16
    int bits;             // of a held component: 8 or 4, else 0: numbers
    const float *score;   // [L, R, H, S, G]
    const void *values;   // [L, value_rows, H, S, D], or bytes
    float *changes;       // [L, R, H, S]
    float *own;           // of each thread
    int64_t own_floats;
};

// Data of a pass of a prompt: the keys that its queries may see are those of the row's slots, then of its
// tokens.
struct Pass {
    const h2o_pass *of;
    int stride;         // T + N rounded up to 32
    float *tiles;       // [R, H, stride / 32, D, 32] the keys, components side by side
    float *values;      // [R, H, N, D] of the tokens; slots have theirs side by side already
    float *at;          // [R, H, stride] position after the row's first token; `kNever`: nobody sees the key
    float *clamped;     // [R, H, stride] 1 or 0
    float *left;        // [2, R, N] decay of each query's contribution at the end of the pass: to the score, to `lately`
    float *own;         // of each thread
    int64_t own_floats;
    const float *cosines, *sines;  // [indices, pairs] of the layer's rope
};

// One call of a model, by all threads.
struct Job {
    const h2o_frame *frame;
    Team *team;
    int tokens;             // N
    int layer;              // of a call for one layer
    const int64_t *ids;     // [N]
    float *x;               // [N, x_stride] residual stream
    float *qkv;             // [N, rows of qkv]; [N, x_stride] what a layer gives before it is normed
    float *attended;        // [N, columns of out]
    float *gated;           // [N, columns of down]; where there are experts [takers, columns of down]
    float *routed;          // [N, experts rounded up to 16] their scores, then their shares; 0: not chosen
    Experts *experts;
    int32_t *takers;        // tokens, expert after expert
    float *weights;         // [N * H * G, slots rounded up to 16] probabilities of the layer under way
    float *logits;          // [N, vocabulary]
    int64_t logits_stride;
    int x_stride;
    int weights_stride;
    int8_t *numbers;        // of the shared `Rounded`, as wide as the widest product
    float *scales;
    int32_t *sums;
    char *own;              // of each thread: `own_bytes`
    size_t own_bytes;
    const float *cosines, *sines;            // [ropes, N, pairs] of each token
    const float *edge_cosines, *edge_sines;  // the same, from there to where clamped keys are met from
    int most_pairs;
    // For a decoded token:
    const h2o_step *step;
    const int32_t *rows;    // [N] which row each token is of
    float *numbers_held;    // of each thread, `kApart` between two: [kUnpacked, D] keys or values of slots that hold bytes
    const float *table_cosines, *table_sines;  // [ropes, indices, pairs] of all indices, where slots hold bytes
    int64_t table_pairs;                       // from one rope to the next
    // For a call of one layer:
    const float *in;        // `attended` of the caller
    float *queries, *keys, *values;
    const Change *change;
    const Pass *pass;
};

struct Sizes {
    int heads, kv_heads, groups, size, rows;  // query heads, KV heads, G, D, rows of qkv
    float scaling;                            // of products of queries and keys

    explicit Sizes(const h2o_frame &frame)
        : heads(frame.heads), kv_heads(frame.kv_heads), groups(frame.heads / frame.kv_heads), size(frame.head_size),
          rows((heads + 2 * kv_heads) * size),
          scaling(frame.attention_scale != 0 ? frame.attention_scale
                                             : 1.0f / __builtin_sqrtf(static_cast<float>(size))) {}
};

// A thread's own room: floats, then rounded numbers, of one token.
struct Own {
    float *floats;
    Rounded rounded;

    Own(const Job &job, int thread) {
        char *at = job.own + job.own_bytes * thread;
        const size_t widest = job.own_bytes / 16;  // floats, and as many numbers, scales and sums beside them
        floats = reinterpret_cast<float *>(at);
        rounded.scales = floats + widest;
        rounded.sums = reinterpret_cast<int32_t *>(rounded.scales + widest);
        rounded.numbers = reinterpret_cast<int8_t *>(rounded.sums + widest);
        rounded.width = 1;
    }
};

// One form of the kernels. Every function is run by all threads of the team.
struct Form {
    void (*decode)(Job &job, int thread);
    void (*embed)(Job &job, int thread);
    void (*before)(Job &job, int thread);
    void (*after)(Job &job, int thread);
    void (*head)(Job &job, int thread);
    void (*change)(Job &job, int thread);
    void (*attend_pass)(Job &job, int thread);
};

extern const Form form_plain, form_avx2, form_avx512, form_amx, form_neon;
