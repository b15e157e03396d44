// Calls every C function of the native step on tiny random models, in every form that this processor can run.
//
// Prints the digest of all results of each form. Exit code 1, and why on stderr, if two forms, two numbers of
// threads, or rows together and rows alone do not give the same bits. Compiled with sanitizers it is the test that
// nothing is read or written out of bounds: every buffer has exactly the size that h2o.h asks for. With the argument
// "little memory" it only opens a model where there is memory for few of its threads.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

#include "h2o.h"
#include "weights.h"

namespace {

struct Random {
    uint64_t state;
    uint32_t next() {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return static_cast<uint32_t>(state >> 33);
    }
    int below(int n) { return static_cast<int>(next() % static_cast<uint32_t>(n)); }
    float number() { return static_cast<float>(next() >> 7) / (1 << 23) - 1.0f; }  // -1 to 1
};

struct Shape {
    const char *name;
    int hidden, intermediate, heads, kv_heads, head_size, vocabulary, layers, kind, v_kind, up_kind, head_kind;
    bool bias, head_norms, tied, damaged, largest;
    int experts = 0, chosen = 0;
    bool like_gpt_oss = false, like_gemma = false;
};

const Shape kShapes[] = {
    {"four bits, tied", 64, 96, 4, 2, 16, 96, 3, H2O_Q4_0, H2O_Q4_0, H2O_Q4_0, H2O_Q8_0, false, false, true, false, false},
    {"eight bits, nothing a multiple of 16", 40, 24, 3, 3, 16, 101, 2, H2O_Q8_0, H2O_Q8_0, H2O_Q8_0, H2O_Q8_0, true, false, false, false, false},
    {"heads of 80, normed", 80, 48, 4, 1, 80, 33, 2, H2O_Q4_0, H2O_Q4_0, H2O_Q4_0, H2O_Q4_0, false, true, false, false, false},
    {"heads of 128", 96, 160, 2, 2, 128, 17, 1, H2O_Q8_0, H2O_Q4_0, H2O_Q8_0, H2O_Q4_0, true, true, false, false, false},
    {"Q4_1 with Q8_0", 64, 96, 4, 2, 16, 40, 2, H2O_Q4_1, H2O_Q8_0, H2O_Q4_1, H2O_Q8_0, true, false, false, false, false},
    {"Q5_0 with Q5_1", 64, 96, 4, 2, 16, 40, 2, H2O_Q5_0, H2O_Q5_0, H2O_Q5_1, H2O_Q8_0, false, false, false, false, false},
    {"Q5_1 with Q8_0", 96, 64, 2, 2, 32, 40, 2, H2O_Q5_1, H2O_Q5_1, H2O_Q8_0, H2O_Q5_0, false, false, false, false, false},
    {"Q4_K with Q5_K and Q6_K", 256, 256, 2, 1, 128, 40, 1, H2O_Q4_K, H2O_Q6_K, H2O_Q5_K, H2O_Q6_K, true, false, true, false, false},
    {"experts, normed together", 64, 48, 4, 2, 16, 40, 2, H2O_Q4_0, H2O_Q4_0, H2O_Q4_0, H2O_Q8_0, false, false, false, false, false, 21, 3},
    {"experts of mixed kinds", 256, 256, 2, 1, 128, 40, 1, H2O_Q4_K, H2O_Q6_K, H2O_Q8_0, H2O_Q6_K, false, true, false, false, false, 5, 2},
    {"experts with sinks and biases", 64, 48, 4, 2, 16, 40, 2, H2O_Q5_0, H2O_Q5_0, H2O_Q5_0, H2O_Q8_0, true, false, false, false, false, 9, 2, true},
    {"norms after, gelu, scales and caps", 40, 24, 3, 3, 16, 101, 2, H2O_Q4_0, H2O_Q8_0, H2O_Q4_0, H2O_Q8_0, false, true, true, false, false, 0, 0, false, true},
    {"the same, eight bits", 96, 64, 4, 1, 32, 40, 3, H2O_Q8_0, H2O_Q8_0, H2O_Q8_0, H2O_Q8_0, true, false, false, false, false, 0, 0, false, true},
    {"damaged experts", 64, 48, 2, 1, 32, 40, 2, H2O_Q4_0, H2O_Q4_0, H2O_Q4_0, H2O_Q8_0, false, true, false, true, false, 4, 4},
    {"damaged weights, four bits", 64, 64, 2, 1, 32, 40, 2, H2O_Q4_0, H2O_Q4_1, H2O_Q4_0, H2O_Q8_0, true, true, true, true, false},
    {"damaged weights, eight bits", 64, 64, 2, 1, 32, 40, 2, H2O_Q8_0, H2O_Q5_1, H2O_Q8_0, H2O_Q8_0, false, true, false, true, false},
    {"damaged weights, blocks", 256, 256, 2, 1, 128, 40, 1, H2O_Q4_K, H2O_Q6_K, H2O_Q5_K, H2O_Q6_K, false, true, false, true, false},
    {"largest, Q4_0", 64, 64, 2, 1, 32, 40, 2, H2O_Q4_0, H2O_Q4_0, H2O_Q4_0, H2O_Q8_0, false, false, true, false, true},
    {"largest, Q5_1", 64, 64, 2, 1, 32, 40, 2, H2O_Q5_1, H2O_Q5_0, H2O_Q5_1, H2O_Q5_0, false, false, true, false, true},
    {"largest, Q6_K", 256, 256, 2, 1, 128, 40, 1, H2O_Q6_K, H2O_Q4_K, H2O_Q5_K, H2O_Q6_K, false, false, true, false, true},
};

int up(int n, int to) { return (n + to - 1) / to * to; }

struct Matrix {
    std::vector<uint8_t> weights, scales;
    h2o_matrix as_c;

    Matrix(Random &random, int rows, int columns, int kind, const Shape &of) {
        const int tiles = up(rows, 16) / 16, groups = up(columns, 32) / 32;
        const int of_scales = scales_bytes(kind) * (has_blocks(kind) ? 8 : 1);  // of a block, or of a group
        weights.resize(static_cast<size_t>(tiles) * groups * levels_bytes(kind));
        scales.resize(static_cast<size_t>(tiles) * groups * scales_bytes(kind));
        for (uint8_t &one : weights) {
            one = static_cast<uint8_t>(random.next());
            if (kind == H2O_Q8_0 && !one && !of.damaged) one = 1;  // -128 is never written
        }
        for (size_t i = 0; of.largest && kind != H2O_Q8_0 && i < weights.size(); ++i) weights[i] = i / 256 % 3 ? 255 : 0;
        for (uint8_t &one : scales) one = static_cast<uint8_t>(random.next());  // bytes of blocks may be anything
        const int halves = has_minimum(kind) ? 32 : 16, exponent = has_blocks(kind) ? 2 : kind == H2O_Q8_0 ? 4 : 8;
        for (size_t at = 0; at < scales.size(); at += of_scales)
            for (int i = 0; i < halves; ++i) {
                const bool padding = static_cast<int>(at / (scales_bytes(kind) * groups) * 16 + i % 16) >= rows;
                uint16_t half = static_cast<uint16_t>(of.damaged ? random.next() : exponent << 10 | random.below(1024));
                if (padding) half = 0;
                std::memcpy(scales.data() + at + 2 * i, &half, sizeof half);
            }
        as_c = {weights.data(), scales.data(), tiles * 16, groups * 32, kind};
    }
};

std::vector<float> numbers(Random &random, size_t count, float around, float by) {
    std::vector<float> all(count);
    for (float &one : all) one = around + by * random.number();
    return all;
}

struct Model {
    const Shape &shape;
    std::vector<Matrix> matrices;
    std::vector<std::vector<float>> vectors;
    std::vector<h2o_layer> layers;
    std::vector<h2o_mlp> mlps;
    std::vector<h2o_rope> ropes;
    h2o_frame frame;

    explicit Model(const Shape &of) : shape(of) {
        Random random{7};
        const int out = of.heads * of.head_size, qkv = out + 2 * of.kv_heads * of.head_size;
        const int each = of.experts ? of.experts : 1;
        matrices.reserve(3 * (1 + each) * of.layers + 2);
        mlps.reserve(each * of.layers);
        vectors.reserve((14 + 3 * each) * of.layers + 4);
        const auto matrix = [&](int rows, int columns, int kind) {
            return matrices.emplace_back(random, rows, columns, kind, of).as_c;
        };
        const auto vector = [&](int count, float around, float by) {
            std::vector<float> &one = vectors.emplace_back(numbers(random, static_cast<size_t>(count), around, by));
            one.resize(static_cast<size_t>(up(count, 16)));  // as a packed file has them
            return one.data();
        };
        for (int scaled = 0; scaled < 2; ++scaled) {
            std::vector<float> &turning = vectors.emplace_back();
            for (int i = 0; i < of.head_size / 2; ++i)
                turning.push_back(1.0f / static_cast<float>(1 + i * i * i));
            ropes.push_back({turning.data(), of.head_size / 2, scaled ? 1.25f : 1.0f});
        }
        for (int number = 0; number < of.layers; ++number) {
            h2o_layer layer = {};
            const int values = of.v_kind == of.kind ? 0 : of.kv_heads * of.head_size, gates = up(of.intermediate, 16);
            layer.qkv[0] = matrix(qkv - values, of.hidden, of.kind);
            if (values) layer.qkv[1] = matrix(values, of.hidden, of.v_kind);
            layer.out = matrix(of.hidden, out, of.kind);
            layer.mlp = mlps.data() + mlps.size();
            for (int expert = 0; expert < each; ++expert) {
                h2o_mlp &mlp = mlps.emplace_back();
                mlp.gate_up = matrix(of.up_kind == of.kind ? 2 * gates : gates, of.hidden, of.kind);
                if (of.up_kind != of.kind) mlp.up = matrix(gates, of.hidden, of.up_kind);
                mlp.down = matrix(of.hidden, of.intermediate, of.v_kind);
                if (!of.like_gpt_oss) continue;
                mlp.bias_gate = vector(of.intermediate, 0, 9);
                mlp.bias_up = vector(of.intermediate, 0, 9);
                mlp.bias_down = vector(of.hidden, 0, .5f);
            }
            layer.router = of.experts ? vector(of.experts * of.hidden, 0, .3f) : nullptr;
            layer.norm_attention = vector(of.hidden, 1, .2f);
            layer.norm_mlp = vector(of.hidden, 1, .2f);
            if (of.like_gemma) {
                layer.norm_attended = vector(of.hidden, 1, .2f);
                layer.norm_fed = vector(of.hidden, 1, .2f);
            }
            layer.bias_qkv = of.bias ? vector(up(qkv, 16), 0, .5f) : nullptr;
            layer.norm_query = of.head_norms ? vector(of.head_size, 1, .2f) : nullptr;
            layer.norm_key = of.head_norms ? vector(of.head_size, 1, .2f) : nullptr;
            if (of.like_gpt_oss) {
                layer.bias_router = vector(of.experts, 0, .5f);
                layer.bias_out = vector(of.hidden, 0, .5f);
                layer.sinks = vector(of.heads, 0, 2);
            } else if (of.experts && !of.head_norms) {
                layer.norm_queries = vector(out, 1, .2f);
                layer.norm_keys = vector(of.kv_heads * of.head_size, 1, .2f);
            }
            layer.rope = number % 3 - (number == 2 ? 3 : 0);  // 0, 1, then a layer without
            layer.sees = number == 1 ? 5 : 0;
            layers.push_back(layer);
        }
        frame = {};
        frame.layer_count = of.layers;
        frame.rope_count = 2;
        frame.hidden = of.hidden;
        frame.heads = of.heads;
        frame.kv_heads = of.kv_heads;
        frame.head_size = of.head_size;
        frame.vocabulary = of.vocabulary;
        frame.experts = of.experts;
        frame.chosen = of.chosen;
        frame.shares_add_up = of.head_norms;
        frame.alpha = of.like_gpt_oss ? 1.7f : 0;
        frame.limit = 7;
        frame.gelu = of.like_gemma;
        frame.epsilon = 1e-5f;
        frame.embedding_scale = of.like_gemma ? 7.5f : 1;
        frame.residual_scale = of.like_gemma ? .75f : 1;
        frame.attention_scale = of.like_gemma ? .3f : 0;
        frame.attention_cap = of.like_gemma ? 2.0f : 0;
        frame.logits_cap = of.like_gemma ? 3.0f : 0;
        frame.layers = layers.data();
        frame.ropes = ropes.data();
        frame.norm = vector(of.hidden, 1, .2f);
        frame.embedding = matrix(of.vocabulary, of.hidden, of.head_kind);
        frame.head = of.tied ? frame.embedding : matrix(of.vocabulary, of.hidden, of.head_kind);
    }
};

// FNV-1a of bits, so that 0 and -0 are two numbers.
struct Digest {
    uint64_t all = 14695981039346656037u;
    template <class T>
    void add(const std::vector<T> &numbers) {
        const unsigned char *at = reinterpret_cast<const unsigned char *>(numbers.data());
        for (size_t i = 0; i < numbers.size() * sizeof(T); ++i) all = (all ^ at[i]) * 1099511628211u;
    }
};

// So many keys or values, as slots hold them: fp32, or rows of bytes.
std::vector<uint8_t> held_numbers(Random &random, size_t count, int size, int kv_bits) {
    const size_t row_bytes = kv_bits ? static_cast<size_t>(size * kv_bits / 8 + 4) : size * sizeof(float);
    std::vector<uint8_t> all(count * row_bytes);
    if (!kv_bits) {
        const std::vector<float> some = numbers(random, count * size, 0, 1);
        std::memcpy(all.data(), some.data(), all.size());
        return all;
    }
    for (uint8_t &one : all) one = static_cast<uint8_t>(random.next());
    for (size_t row = 0; row < count; ++row) {  // from -1 to 1: the lowest level, and the step
        const int step = kv_bits == 8 ? 7 : 11;
        const uint16_t scale[2] = {static_cast<uint16_t>(0xb800 | random.below(1024)),
                                   static_cast<uint16_t>(step << 10 | random.below(1024))};
        std::memcpy(all.data() + (row + 1) * row_bytes - sizeof scale, scale, sizeof scale);
    }
    return all;
}

// The slots of one layer, some of them in use, none where `order` says so.
struct Slots {
    std::vector<float> score, lately;
    std::vector<int32_t> positions, order;
    std::vector<uint8_t> keys, values, prompt, protect, clamped;
    h2o_slots as_c;

    Slots(Random &random, const Shape &shape, int rows, int slots, int held, int used, int number, int kv_bits) {
        const size_t heads = static_cast<size_t>(rows) * shape.kv_heads, all = heads * slots;
        const int groups = shape.heads / shape.kv_heads;
        keys = held_numbers(random, all, shape.head_size, kv_bits);
        values = held_numbers(random, all, shape.head_size, kv_bits);
        score = numbers(random, all * groups, 1, 1);
        lately = numbers(random, all, .1f, .1f);
        positions.assign(all, -1);
        order.resize(all);
        prompt.resize(all);
        protect.resize(all);
        clamped.resize(all);
        for (size_t head = 0; head < heads; ++head) {
            const size_t first = head * slots;
            for (int s = 0; s < slots; ++s) order[first + s] = s;
            for (int s = used - 1; s > 0; --s) std::swap(order[first + s], order[first + random.below(s + 1)]);
            for (int s = 0; s < held; ++s) {
                const size_t slot = first + order[first + s];
                positions[slot] = random.below(8) == 0 ? -1 : 3 * s;
                if (random.below(64) == 0) positions[slot] = INT32_MAX;  // a damaged file may say so
                clamped[slot] = random.below(3) == 0;
                protect[slot] = random.below(3) == 0;
            }
        }
        as_c = {};
        as_c.keys = keys.data();
        as_c.values = values.data();
        as_c.positions = positions.data();
        as_c.score = score.data();
        as_c.lately = number % 2 ? nullptr : lately.data();
        as_c.prompt = prompt.data();
        as_c.protect = protect.data();
        as_c.clamped = clamped.data();
        as_c.order = order.data();
        as_c.slots = slots;
        as_c.used = used;
    }

    void add_to(Digest &digest) const {
        for (const auto *one : {&score, &lately}) digest.add(*one);
        for (const auto *one : {&keys, &values, &prompt, &protect}) digest.add(*one);
        digest.add(positions);
    }
};

int failures = 0;

void expect(bool fine, const std::string &what) {
    if (fine) return;
    std::fprintf(stderr, "%s\n", what.c_str());
    ++failures;
}

// Three tokens of so many rows; one row waits in the second. `alone`: a call for each row, in which all others wait.
void decode(h2o_model *model, const Shape &shape, int rows, int slots, bool alone, Digest &digest, int kv_bits = 0) {
    Random random{static_cast<uint64_t>(rows)};
    const int held = slots - 5, tokens = 3;
    std::vector<Slots> layers;
    layers.reserve(static_cast<size_t>(shape.layers));
    for (int number = 0; number < shape.layers; ++number)
        layers.emplace_back(random, shape, rows, slots, held, slots - 1, number, kv_bits);
    std::vector<h2o_slots> as_c;
    for (const Slots &one : layers) as_c.push_back(one.as_c);
    std::vector<int32_t> there(rows, held);
    for (int token = 0; token < tokens; ++token) {
        std::vector<int64_t> ids(rows);
        std::vector<int32_t> positions(rows), index(rows), edge(rows);
        std::vector<uint8_t> protect(rows);
        for (int row = 0; row < rows; ++row) {
            ids[row] = random.below(shape.vocabulary);
            positions[row] = token == 1 && rows > 1 && row == rows / 2 ? -1 : 3 * slots + token;
            index[row] = 100 + random.below(1000);
            edge[row] = random.below(500) - 250;
            protect[row] = row % 2;
        }
        std::vector<float> logits(static_cast<size_t>(rows) * shape.vocabulary);
        h2o_step step = {};
        step.rows = rows;
        step.of_prompt = token == 0;
        step.clamps = token != 1;
        step.kv_bits = kv_bits;
        step.farthest = 1200;
        step.nearer = 150;
        step.nearer_from = 4;
        step.decay_factor = .96f;
        step.lately_decay = .9f;
        step.ids = ids.data();
        step.index = index.data();
        step.edge = edge.data();
        step.in_use = there.data();
        step.protect = protect.data();
        step.slots = as_c.data();
        for (int call = 0; call < (alone ? rows : 1); ++call) {
            std::vector<int32_t> asked = positions;
            for (int row = 0; alone && row < rows; ++row)
                if (row != call) asked[row] = -1;
            step.positions = asked.data();
            expect(h2o_decode(model, &step, logits.data()) == 0, "h2o_decode: no memory");
        }
        for (int row = 0; row < rows; ++row) there[row] += positions[row] >= 0;
        digest.add(logits);
    }
    for (const Slots &one : layers) one.add_to(digest);
}

// All are rounded to the largest whole number: of a group all have one sign, or pairs have it by turns. So a form that adds
// pairs in few bits meets the largest sums that there are.
std::vector<float> largest_numbers(Random &random, size_t count) {
    std::vector<float> all(count);
    for (size_t i = 0, how = 0; i < count; ++i) {
        if (i % 32 == 0) how = static_cast<size_t>(random.below(4));
        all[i] = (how < 2 ? how == 0 : i % 4 / 2 == how % 2) ? 1.0f : -1.0f;
    }
    return all;
}

// So many tokens of a prompt, layer by layer; what attention would give is made up.
void read(h2o_model *model, const Shape &shape, int tokens, Digest &digest) {
    Random random{static_cast<uint64_t>(tokens)};
    const size_t n = static_cast<size_t>(tokens), kv = n * shape.kv_heads * shape.head_size;
    std::vector<int64_t> ids(n);
    std::vector<int32_t> index(n);
    for (int64_t &id : ids) id = random.below(shape.vocabulary);
    for (size_t i = 0; i < n; ++i) index[i] = static_cast<int32_t>(i) + 3;
    std::vector<float> x(n * shape.hidden), queries(n * shape.heads * shape.head_size), keys(kv), values(kv);
    expect(h2o_embed(model, tokens, ids.data(), x.data()) == 0, "h2o_embed: no memory");
    expect(h2o_turns(model, tokens, index.data()) == 0, "h2o_turns: no memory");
    for (int layer = 0; layer < shape.layers; ++layer) {
        expect(h2o_before(model, layer, tokens, x.data(), queries.data(), keys.data(), values.data()) == 0,
               "h2o_before: no memory");
        for (const auto *one : {&queries, &keys, &values}) digest.add(*one);
        const std::vector<float> attended =
            shape.largest ? largest_numbers(random, queries.size()) : numbers(random, queries.size(), 0, 1);
        expect(h2o_after(model, layer, tokens, attended.data(), x.data()) == 0, "h2o_after: no memory");
        digest.add(x);
    }
    std::vector<float> logits(n * shape.vocabulary);
    expect(h2o_head(model, tokens, x.data(), logits.data()) == 0, "h2o_head: no memory");
    digest.add(logits);
}

// Keys or values of so many slots: numbers, or rows of bytes whose lowest value is -1 and whose step a power of two.
std::vector<uint8_t> held(Random &random, size_t slots, int size, int bits) {
    std::vector<uint8_t> all;
    if (!bits) {
        const std::vector<float> exact = numbers(random, slots * size, 0, 1);
        all.resize(exact.size() * sizeof(float));
        std::memcpy(all.data(), exact.data(), all.size());
        return all;
    }
    const uint16_t scale[2] = {0xbc00, static_cast<uint16_t>(bits == 8 ? 0x2000 : 0x3000)};
    const size_t levels = static_cast<size_t>(size) * bits / 8;
    all.resize(slots * (levels + sizeof scale));
    for (size_t at = 0; at < all.size(); at += levels + sizeof scale) {
        for (size_t i = 0; i < levels; ++i) all[at + i] = static_cast<uint8_t>(random.below(256));
        std::memcpy(all.data() + at + levels, scale, sizeof scale);
    }
    return all;
}

// How far outputs would move without each slot, of all layers at once. `alone`: a call for each row, its values in their
// place among those of all.
void change(h2o_model *model, const Shape &shape, int rows, int slots, int bits, bool alone, Digest &digest) {
    Random random{static_cast<uint64_t>(slots) + 2};
    const size_t groups = shape.heads / shape.kv_heads, unit = static_cast<size_t>(shape.kv_heads) * slots;
    const size_t layers = shape.layers, all = layers * rows * unit;
    std::vector<float> score = numbers(random, all * groups, 0, 1);
    for (float &one : score) one = one < 0 ? 0 : one;
    std::fill_n(score.begin(), slots * groups, 0.0f);  // of a head that attended to nothing
    const std::vector<uint8_t> values = held(random, all, shape.head_size, bits);
    const size_t calls = alone ? rows : 1, mine = unit * rows / calls, bytes = values.size() / all;
    std::vector<float> changes(all);
    for (size_t call = 0; call < calls; ++call) {
        std::vector<float> own_score, own_changes(layers * mine);
        for (size_t layer = 0; layer < layers; ++layer) {
            const auto from = score.begin() + (layer * calls + call) * mine * groups;
            own_score.insert(own_score.end(), from, from + mine * groups);
        }
        expect(h2o_change(model, shape.layers, alone ? 1 : rows, rows, slots, bits, own_score.data(),
                          values.data() + call * unit * bytes, own_changes.data()) == 0,
               "h2o_change: no memory");
        for (size_t layer = 0; layer < layers; ++layer)
            std::copy_n(own_changes.begin() + layer * mine, mine, changes.begin() + (layer * calls + call) * mine);
    }
    digest.add(changes);
}

// A pass of a prompt in every layer: rows of different length, empty and clamped slots. `alone`: a call for each row.
void attend(h2o_model *model, const Shape &shape, int rows, int slots, bool alone, Digest &digest) {
    Random random{static_cast<uint64_t>(slots) + 1};
    const int tokens = 11, size = shape.head_size, heads = shape.heads, kv_heads = shape.kv_heads;
    const size_t kv = static_cast<size_t>(rows) * kv_heads;
    const std::vector<float> queries = numbers(random, static_cast<size_t>(rows) * tokens * heads * size, 0, 1);
    const std::vector<float> keys = numbers(random, kv * tokens * size, 0, 1);
    const std::vector<float> held = numbers(random, 2 * kv * slots * size, 0, 1);
    std::vector<int32_t> used(rows), first(rows), count(rows), index(rows), positions(kv * slots);
    std::vector<uint8_t> clamped(kv * slots);
    for (int row = 0; row < rows; ++row) {
        used[row] = row % 4 == 3 ? 0 : slots - row % 3;
        count[row] = row % 5 == 4 ? 0 : tokens - row % 7;
        first[row] = 4 * slots + row;
        index[row] = random.below(300);
    }
    for (size_t slot = 0; slot < kv * slots; ++slot) {
        positions[slot] = random.below(5) == 0 ? -1 : random.below(4 * slots);
        clamped[slot] = random.below(3) == 0;
    }
    for (int layer = 0; layer < shape.layers; ++layer) {
        for (int call = 0; call < (alone ? rows : 1); ++call) {
            const size_t row = call, units = row * kv_heads;
            const int most_used = alone ? used[row] : slots, sums = most_used + tokens;
            const size_t asked = alone ? 1 : rows;
            std::vector<float> attended(asked * heads * tokens * size), gain(asked * heads * sums), share(gain.size());
            h2o_pass pass = {};
            pass.layer = layer;
            pass.rows = static_cast<int32_t>(asked);
            pass.tokens = tokens;
            pass.slots = slots;
            pass.most_used = most_used;
            pass.clamps = layer != 1;
            pass.edge = 250;
            pass.decay_factor = .96f;
            pass.lately_decay = .9f;
            pass.used = used.data() + row;
            pass.first = first.data() + row;
            pass.count = count.data() + row;
            pass.index = index.data() + row;
            pass.queries = queries.data() + row * tokens * heads * size;
            pass.keys = pass.values = keys.data() + units * tokens * size;
            pass.query_row = static_cast<int64_t>(tokens) * heads * size;
            pass.query_head = size;
            pass.query_token = static_cast<int64_t>(heads) * size;
            pass.key_row = static_cast<int64_t>(tokens) * kv_heads * size;
            pass.key_head = size;
            pass.key_token = static_cast<int64_t>(kv_heads) * size;
            pass.held_keys = held.data() + units * slots * size;
            pass.held_values = pass.held_keys + kv * slots * size;
            pass.positions = positions.data() + units * slots;
            pass.clamped = clamped.data() + units * slots;
            pass.attended = attended.data();
            pass.gain = gain.data();
            pass.lately = layer == 0 ? nullptr : share.data();
            expect(h2o_attend(model, &pass) == 0, "h2o_attend: no memory");
            const size_t outputs = static_cast<size_t>(heads) * tokens * size;
            for (size_t one = 0; one < asked; ++one) {
                const float *output = attended.data() + one * outputs;
                digest.add(std::vector<float>(output, output + outputs));
                for (size_t head = one * heads; head < (one + 1) * heads; ++head) {
                    for (const std::vector<float> *of : {&gain, &share}) {  // without slots that only other rows have
                        const float *from = of->data() + head * sums;
                        digest.add(std::vector<float>(from, from + used[row + one]));
                        digest.add(std::vector<float>(from + most_used, from + sums));
                    }
                }
            }
        }
    }
}

// Blocks of each type of a file, most of them damaged, in buffers of exactly their size.
void lay_out(Digest &digest) {
    const struct {
        int kind, to, numbers, bytes;  // of a block
    } types[] = {{H2O_F32, H2O_Q8_0, 1, 4},       {H2O_F16, H2O_Q8_0, 1, 2},       {H2O_BF16, H2O_Q8_0, 1, 2},
                 {H2O_Q4_0, H2O_Q4_0, 32, 18},    {H2O_Q4_1, H2O_Q4_1, 32, 20},    {H2O_Q5_0, H2O_Q5_0, 32, 22},
                 {H2O_Q5_1, H2O_Q5_1, 32, 24},    {H2O_Q8_0, H2O_Q8_0, 32, 34},    {H2O_Q4_K, H2O_Q4_K, 256, 144},
                 {H2O_Q5_K, H2O_Q5_K, 256, 176}, {H2O_Q6_K, H2O_Q6_K, 256, 210}};
    Random random{11};
    for (const auto &type : types)
        for (const int blocks : {1, 3, 5}) {
            const int rows = 23, tiles = 2, columns = blocks * type.numbers;
            const size_t groups = static_cast<size_t>(up(columns, 32)) / 32;
            std::vector<uint8_t> from(static_cast<size_t>(rows * blocks * type.bytes));
            for (uint8_t &one : from) one = static_cast<uint8_t>(random.next());
            std::vector<int32_t> order;
            for (int row = 0; row < 16 * tiles; ++row) order.push_back(row < rows ? rows - 1 - row : -1);
            for (const int every : {1, 2}) {
                std::vector<uint8_t> weights((every + 1) * groups * levels_bytes(type.to));
                std::vector<uint8_t> scales((every + 1) * groups * scales_bytes(type.to));
                const int said = h2o_lay_out(type.kind, columns, tiles, every, from.data(), order.data(), weights.data(),
                                             scales.data());
                expect(said == 0 || said == 1, "h2o_lay_out does not know a type");
                for (const auto *one : {&weights, &scales}) digest.add(*one);
            }
        }
    expect(h2o_lay_out(99, 32, 0, 1, nullptr, nullptr, nullptr, nullptr) == 2, "h2o_lay_out knows any type");
}

struct Form {
    int bit;
    const char *name;
};

const Form kForms[] = {{1, "plain"}, {2, "AVX2"}, {4, "AVX-512"}, {8, "NEON"}, {16, "AMX"}};

thread_local int number_here = 0, count_here = 1;

// Lends threads as OpenMP does. Of seven that it is asked for it gives six.
void lend(void (*work)(void *), void *data, unsigned threads, unsigned) {
    const int count = threads == 7 ? 6 : static_cast<int>(threads);
    std::vector<std::thread> others;
    for (int number = 1; number < count; ++number)
        others.emplace_back([=] {
            number_here = number, count_here = count;
            work(data);
        });
    number_here = 0, count_here = count;
    work(data);
    for (std::thread &other : others) other.join();
}

// `alone`: each row in a call of its own. `lent`: the threads are borrowed.
uint64_t everything(const Shape &shape, int form, int threads, bool alone, bool lent = false) {
    const Model of(shape);
    h2o_model *model = h2o_open(&of.frame, form, lent ? 1 : threads);
    expect(model != nullptr, "h2o_open gives no model");
    if (!model) return 0;
    const h2o_lender lender = {lend, [] { return number_here; }, [] { return count_here; }};
    if (lent) expect(h2o_borrow(model, &lender, threads) == 0, "h2o_borrow: no memory");
    expect(h2o_form(model) == form, "h2o_form is another");
    expect(h2o_reserve(model, 2, 24) == 0, "h2o_reserve: no memory");
    Digest digest;
    for (const int tokens : {1, 2, 7, 16, 41}) read(model, shape, tokens, digest);
    for (const int rows : {1, 2, 5, 16}) {
        const int slots = rows == 2 ? 70 : 23;
        for (const int kv_bits : {0, 8, 4}) decode(model, shape, rows, slots, alone, digest, kv_bits);
        attend(model, shape, rows, slots, alone, digest);
        for (int bits : {0, 8, 4}) change(model, shape, rows, rows == 1 ? 23 : 70, bits, alone, digest);
    }
    expect(h2o_waited_ms(model) >= 0, "h2o_waited_ms is negative");
    h2o_close(model);
    return digest.all;
}

// Only few of so many threads fit into what memory there may be: it computes with those.
int with_little_memory() {
    std::FILE *file = std::fopen("/proc/self/statm", "r");
    unsigned long pages = 0;
    if (!file || std::fscanf(file, "%lu", &pages) != 1) return 1;
    std::fclose(file);
    struct rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = pages * static_cast<unsigned long>(sysconf(_SC_PAGESIZE)) + (64ul << 20);
    setrlimit(RLIMIT_AS, &limit);
    const Model of(kShapes[0]);
    h2o_model *model = h2o_open(&of.frame, 0, 1000);
    expect(model != nullptr, "h2o_open gives no model");
    if (!model) return 1;
    Digest digest;
    decode(model, kShapes[0], 5, 23, false, digest);
    h2o_close(model);
    std::printf("computed with little memory\n");
    return failures != 0;
}

}  // namespace

int main(int count, char **arguments) {
    const std::string how = count > 1 ? arguments[1] : "";
    if (how == "little memory") return with_little_memory();
    const int forms = h2o_forms();
    const Model any(kShapes[0]);
    for (const Form &form : kForms)
        if (!(forms & form.bit))
            expect(!h2o_open(&any.frame, form.bit, 1), std::string(form.name) + " is opened where it cannot run");
    expect(!h2o_open(&any.frame, 64, 1), "a form that there is not is opened");
    std::vector<uint64_t> first;
    for (const Form &form : kForms) {
        if (!(forms & form.bit)) continue;
        Digest of_form;
        lay_out(of_form);
        std::vector<uint64_t> now;
        for (const Shape &shape : kShapes) {
#if defined(H2O_THREADS_ALONE)
            if (shape.damaged || shape.largest) continue;  // they try numbers, not threads
#endif
            const uint64_t several = everything(shape, form.bit, 3, false);
            const uint64_t alone = everything(shape, form.bit, 2, true);
#if defined(H2O_SANITIZED)
            const uint64_t one = several;  // one thread reads and writes no more than three: it is not run
#else
            const uint64_t one = everything(shape, form.bit, 1, false);
#endif
            if (shape.damaged) continue;  // what is no number may be no number in several ways
            const std::string where = std::string(form.name) + ", " + shape.name + ": ";
            expect(one == several, where + "three threads give other bits than one");
            expect(one == alone, where + "rows together give other bits than rows alone");
            for (const int lent : {2, 7})  // which takes longer: a thread begins with each call
                if (&shape == kShapes)
                    expect(one == everything(shape, form.bit, lent, false, true), where + "borrowed threads give other bits");
            now.push_back(one);
            if (first.size() >= now.size())
                expect(one == first[now.size() - 1], where + "other bits than " + kForms[0].name);
        }
        if (first.empty()) first = now;
        of_form.add(now);
        std::printf("%s %016llx\n", form.name, static_cast<unsigned long long>(of_form.all));
    }
    return failures != 0;
}
