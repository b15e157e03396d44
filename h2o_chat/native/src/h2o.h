// The native step: a Llama-shaped model with weights of 4 to 8 bits computes tokens over an H2O cache's slots.
//
// Plain C functions and structs, called with ctypes (../library.py). Nothing here chooses what is kept: the slots,
// their ranking and their eviction are those of h2o_chat/cache. Who calls answers for every pointer and size.
//
// N tokens of one call, R rows (conversations), H KV heads, G query heads per KV head, S slots, D components of a head.

#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef _WIN32
#define H2O_API __declspec(dllexport)
#else
#define H2O_API __attribute__((visibility("default")))
#endif

// Kinds of weights, by ggml's numbers of its types. Ours of 4 and 8 bits are H2O_Q4_0 and H2O_Q8_0.
enum {
    H2O_F32 = 0,
    H2O_F16 = 1,
    H2O_Q4_0 = 2,
    H2O_Q4_1 = 3,
    H2O_Q5_0 = 6,
    H2O_Q5_1 = 7,
    H2O_Q8_0 = 8,
    H2O_Q4_K = 12,
    H2O_Q5_K = 13,
    H2O_Q6_K = 14,
    H2O_BF16 = 30,
    H2O_MXFP4 = 39
};

// Weights [rows, columns] in tiles of 16 rows by 32 columns (weights.h): rows is a multiple of 16, columns of 32, of K
// kinds of 256.
typedef struct {
    const uint8_t *weights, *scales;
    int32_t rows, columns;
    int32_t kind;  // not F32, F16, BF16 or MXFP4
} h2o_matrix;

// How keys and queries are turned: pairs (i, i + pairs) of the first 2 * pairs components.
typedef struct {
    const float *inv_freq;  // [pairs] radians per position
    int32_t pairs;
    float scale;  // of cosines and sines
} h2o_rope;

// An MLP, or one expert of several.
typedef struct {
    h2o_matrix gate_up;  // a tile of gate, a tile of up, and so on; gate alone where `up` has rows
    h2o_matrix up;
    h2o_matrix down;
    const float *bias_gate, *bias_up, *bias_down;  // null: none
} h2o_mlp;

// Vectors go on with zeros up to a multiple of 16.
typedef struct {
    h2o_matrix qkv[3];   // all of q, then k, then v, in one matrix or in several; others have no rows
    h2o_matrix out;
    const h2o_mlp *mlp;  // one, or [experts], all alike
    const float *router;                     // [experts, hidden], hidden a multiple of 16; null: there are no experts
    const float *bias_router;                // [experts]; null: none
    const float *norm_attention, *norm_mlp;  // [hidden] of what each is given; null: none
    const float *norm_attended, *norm_fed;   // [hidden] of what each gives; null: none
    const float *bias_qkv, *bias_out;        // [rows of qkv], [hidden]; null: none
    const float *sinks;                      // [H * G] a score that every query has beside those of keys; null: none
    const float *norm_query, *norm_key;      // [D] of each head; null: none
    const float *norm_queries, *norm_keys;   // [H * G * D], [H * D] of all heads together; null: none
    int32_t rope;                            // which one; -1: nothing is turned
    int32_t sees;                            // positions that a query sees, itself included; 0: all before it
} h2o_layer;

typedef struct {
    int32_t layer_count, rope_count;
    int32_t hidden, heads, kv_heads, head_size, vocabulary;
    int32_t experts, chosen;  // of each layer, 1,024 at most; of each token; 0: none
    int32_t shares_add_up;    // the chosen experts' shares in the output of a layer are divided by their sum
    int32_t gelu;             // gelu(gate) * up, by its formula with tanh; 0: silu(gate) * up
    float alpha, limit;       // min(gate, limit) / (1 + e^(-alpha gate)) * (1 + up within limits); alpha 0: as above
    float epsilon;
    float embedding_scale;    // factor of the embedding's rows
    float residual_scale;     // factor of what attention and MLP give
    float attention_scale;    // factor of products of queries and keys; 0: 1 / sqrt(head_size)
    float attention_cap, logits_cap;  // cap * tanh(x / cap) of them, and of the logits; 0: none
    const h2o_layer *layers;
    const h2o_rope *ropes;
    const float *norm;  // [hidden]
    h2o_matrix embedding, head;
} h2o_frame;

// The slots of one layer, h2o_chat/cache/state.py. All but `order`, `clamped` are written.
typedef struct {
    void *keys, *values;    // [R, H, S, D] fp32, keys turned; or bytes, not turned (h2o_step.kv_bits)
    int32_t *positions;     // [R, H, S], -1: empty
    float *score;           // [R, H, S, G]
    float *lately;          // [R, H, S]; null: not kept
    uint8_t *prompt, *protect;  // [R, H, S]
    const uint8_t *clamped; // [R, H, S]
    const int32_t *order;   // [R, H, S] slots in use, then the empty ones in the order of writing
    int32_t slots;          // S
    int32_t used;           // leading slots that may be in use, the new ones included
} h2o_slots;

// One token of each row, read or generated.
typedef struct {
    int32_t rows;              // R
    int32_t of_prompt;
    int32_t clamps;            // some key may be clamped
    int32_t kv_bits;           // 0: keys and values are fp32; 8, 4: rows of bytes, h2o_chat/cache/quantized.py
    int32_t farthest;          // largest absolute rotation index of a key
    int32_t nearer;            // rotation index of clamped keys that are protected, and from `nearer_from` on;
    int32_t nearer_from;       // others have 0 (h2o_chat/cache/distance.py)
    float decay_factor;        // factor of the scores at each query
    float lately_decay;        // factor of `lately` at each query
    const int64_t *ids;        // [R]
    const int32_t *positions;  // [R] in the conversation; -1: the row waits, nothing of it changes
    const int32_t *index;      // [R] rotation index
    const int32_t *edge;       // [R] positions from `index` to the index at which queries meet clamped keys
    const int32_t *in_use;     // [R] slots in use before
    const uint8_t *protect;    // [R]
    const h2o_slots *slots;    // [layers]
} h2o_step;

// A pass of a prompt in one layer: N tokens of each row at most, which attend to its slots and to one another. Strides are
// in floats; the components of a head lie side by side.
typedef struct {
    int32_t layer;
    int32_t rows, tokens;      // R, N
    int32_t slots, most_used;  // S, T: the most of `used`
    int32_t clamps;            // some key may be clamped
    int32_t edge;              // rotation index from which queries meet clamped keys
    float decay_factor, lately_decay;
    const int32_t *used;       // [R] leading slots that may be in use
    const int32_t *first;      // [R] position of each row's first token
    const int32_t *count;      // [R] its real tokens, which stand in front
    const int32_t *index;      // [R] rotation index of its first token
    const float *queries;      // [R, H * G, N, D]
    const float *keys, *values;              // [R, H, N, D]
    int64_t query_row, query_head, query_token;
    int64_t key_row, key_head, key_token;    // of keys and of values
    const float *held_keys, *held_values;    // [R, H, S, D], keys turned
    const int32_t *positions;                // [R, H, S], -1: empty
    const uint8_t *clamped;                  // [R, H, S]
    float *attended;           // [R, H * G, N, D]; 0 for tokens that are not real
    float *gain;               // [R, H * G, T + N] what the pass adds to the scores of the slots, and of its tokens
    float *lately;             // [R, H * G, T + N] what it adds to `lately`, to be summed over G; null: nobody looks
} h2o_pass;

// Existing threads of an OpenMP library (GOMP_parallel, omp_get_thread_num, omp_get_num_threads).
typedef struct {
    void (*run)(void (*work)(void *data), void *data, unsigned threads, unsigned flags);
    int (*number)(void);  // of the thread that asks, from 0 on
    int (*count)(void);   // how many there are beside it, itself included
} h2o_lender;

typedef struct h2o_model h2o_model;

// Bits of the forms that this processor can run: 1 plain, 2 AVX2, 4 AVX-512 VNNI, 8 NEON with dot products,
// 16 AVX-512 with AMX.
H2O_API int32_t h2o_forms(void);

// A model whose frame (copied) points to weights that stay where they are. Form 0: the fastest. Null: no memory, or not
// a form that runs here.
H2O_API h2o_model *h2o_open(const h2o_frame *frame, int32_t form, int32_t threads);
H2O_API void h2o_close(h2o_model *model);
// Makes later calls of a model opened with one thread use the lender's threads, which are awake.
// 0, or 1 if there is no memory.
H2O_API int32_t h2o_borrow(h2o_model *model, const h2o_lender *lender, int32_t threads);
H2O_API int32_t h2o_form(const h2o_model *model);

// All of these: 0, or 1 if there is no memory. A model computes one call at a time.

// Makes room for calls of so many tokens, or rows of so many slots.
H2O_API int32_t h2o_reserve(h2o_model *model, int32_t tokens, int32_t slots);
// Decodes one token of each row. Logits [R, vocabulary]; those of rows that wait are not written.
H2O_API int32_t h2o_decode(h2o_model *model, const h2o_step *step, float *logits);
// Layer by layer, for callers that attend themselves. x: [N, hidden].
H2O_API int32_t h2o_embed(h2o_model *model, int32_t tokens, const int64_t *ids, float *x);
// Rotation indices [N] of the tokens of the following calls of h2o_before.
H2O_API int32_t h2o_turns(h2o_model *model, int32_t tokens, const int32_t *index);
// Norm, products, norms of heads, RoPE: queries [N, H * G, D], keys and values [N, H, D].
H2O_API int32_t h2o_before(h2o_model *model, int32_t layer, int32_t tokens, const float *x, float *queries, float *keys,
                           float *values);
// Attention of a prompt.
H2O_API int32_t h2o_attend(h2o_model *model, const h2o_pass *pass);
// Applies `out` and the MLP to the attention's output [N, H * G, D], and adds the result to x.
H2O_API int32_t h2o_after(h2o_model *model, int32_t layer, int32_t tokens, const float *attended, float *x);
// Logits [N, vocabulary].
H2O_API int32_t h2o_head(h2o_model *model, int32_t tokens, const float *x, float *logits);

// How far the output of its queries would move without each slot (output_change_of_heads in ../../policies/policies.py):
// scores [L, R, H, S, G] -> [L, R, H, S]. Values are the first R of the rows in [L, value_rows, H, S, D], or bytes.
H2O_API int32_t h2o_change(h2o_model *model, int32_t layers, int32_t rows, int32_t value_rows, int32_t slots,
                           int32_t kv_bits, const float *score, const void *values, float *changes);

// Lays rows of a tensor of a GGUF file out in tiles. F32, F16 and BF16 become H2O_Q8_0: scale = largest / 127;
// MXFP4 becomes H2O_Q5_0. Returns 0, or 1 if a scale is no finite number in fp16, 2 if the kind is not known.
//
// rows: of `columns` numbers, as the file has them. order: [16 * tiles] which of them each row of a tile is; -1: zeros.
// every: tiles from one to the next in `weights` and `scales`.
H2O_API int32_t h2o_lay_out(int32_t kind, int32_t columns, int32_t tiles, int32_t every, const uint8_t *rows,
                            const int32_t *order, uint8_t *weights, uint8_t *scales);

// Milliseconds that threads of all calls so far waited for another after they had stopped spinning.
H2O_API double h2o_waited_ms(const h2o_model *model);

#ifdef __cplusplus
}
#endif
