// Kinds of weights, by ggml's numbers of its types: where their levels and scales lie.
//
// A matrix [rows, columns] is stored in tiles of 16 rows. A group is 32 columns of a tile, [G] of them in a row of tiles.
//
//   levels of 4 bits   [4, 16, 4] bytes: the low half of byte [j, r, i] is row r, column 4j + i, the high half column 16 + 4j + i
//             5 bits   the lowest four as above, then [16, 4]: bit j of byte [r, i] is the highest bit of column 4j + i
//             6 bits   the lowest four as above, then [2, 16, 4]: bits 2j and 2j + 1 of byte [half, r, i] are the highest of
//                      column 16 half + 4j + i
//             8 bits   [8, 16, 4]: byte [j, r, i] is column 4j + i
//
//   scales, of a group, of 16 rows each:
//             Q4_0, Q5_0, Q8_0   fp16 scale                          weight = (level - 8, 16, 128) * scale
//             Q4_1, Q5_1         fp16 scale, fp16 minimum            weight = level * scale - minimum
//           of eight groups:
//             Q4_K, Q5_K         fp16 d, fp16 e, eight times (u8 s, u8 m): scale = d * s, minimum = e * m
//             Q6_K               fp16 d, sixteen times u8 s, of 16 columns: weight = (level - 32) * d * (s - 128)

#pragma once

#include "h2o.h"

namespace {

constexpr int level_bits(int kind) {
    return kind == H2O_Q8_0                                              ? 8
           : kind == H2O_Q6_K                                            ? 6
           : kind == H2O_Q5_0 || kind == H2O_Q5_1 || kind == H2O_Q5_K ? 5
                                                                         : 4;
}

constexpr bool has_blocks(int kind) { return kind >= H2O_Q4_K; }  // of eight groups with scales of their scales
constexpr bool has_halves(int kind) { return kind == H2O_Q6_K; }  // a scale for 16 columns
constexpr bool has_minimum(int kind) {
    return kind == H2O_Q4_1 || kind == H2O_Q5_1 || kind == H2O_Q4_K || kind == H2O_Q5_K;
}

// The level of a weight that is 0, where there is no minimum.
constexpr int zero_level(int kind) { return 1 << (level_bits(kind) - 1); }

// Bytes of a group, and of its scales (of eight groups an eighth).
constexpr int levels_bytes(int kind) { return 64 * level_bits(kind); }
constexpr int scales_bytes(int kind) {
    return has_halves(kind) ? 36 : has_blocks(kind) ? 40 : has_minimum(kind) ? 64 : 32;
}

}  // namespace
