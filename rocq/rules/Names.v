(* Names of the author's own: their slopes, what they stand for, regions that are 0 or 1, and cells of regions, in which rows
   that are at least 0 add up to -x^2, so that x = 0, or to 0 though one of them is positive, so that no sample is there. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Tokens Setting Ring Statements Instances Derivatives.
Import ListNotations.
Open Scope R_scope.

Section Soundness.
Variable S : setting.
Variable par : nat -> bool -> R.
Hypothesis par_ok : forall i, par i true <> 0.
Notation env := (env S par).
Notation env_ok := (env_ok S par par_ok). Notation holds := (holds S par).
Variable pr : premises.
Hypothesis P : holds pr.
Let defined_here : defined S par (definitions pr). Proof. apply P. Qed.
Notation body_ok := (body_ok S par par_ok pr).

Lemma name_value zs k s e w : body pr zs k = Some (s, e) -> names S k (theta S) (theta S) (map w zs) = worth_as s (den (env w) e).
Proof. intros B. rewrite (body_ok zs k s e defined_here B). now destruct s. Qed.

(* ---------- slopes, and what names stand for ---------- *)
Theorem name_slope_ok m i zs k d w : reached S m i w -> name_slope pr m i zs k = Some d -> env w (Named zs k Slope false) = den (env w) d.
Proof.
  intros Re. pose proof (reached_few S m i w Re) as W. unfold name_slope, has_slope. destruct (depth pr) as [|n]; cbn [slope_within]; [discriminate|].
  destruct (body pr zs k) as [[[] e]|] eqn:B; try discriminate.
  - destruct (_ && _)%bool eqn:H; [|discriminate]. apply andb_prop in H as [H A]. apply andb_prop in H as [H K]. intros R1. apply Some_inj in R1; subst d.
    pose proof (positive_at_ok S par par_ok pr m i e w P Re A) as Pos.
    pose proof (loss_derive S par par_ok (slope_within n pr m i) e w H K (slope_within_ok S par par_ok n pr m i w P Re W)) as D.
    unfold Statements.env at 1. cbn [val]. etransitivity; [exact (is_derive_unique _ _ _ (named_log S par par_ok pr zs k e w P B Pos D))|].
    rewrite mul_ok by apply env_ok. unfold inverse_name. rewrite exp_ok. cbn [dlin dmon]. rewrite power_1, Q2R_m1.
    replace (env w (Named zs k Moving false)) with (ln (den (env w) e)) by (symmetry; exact (name_value zs k Log e w B)).
    replace (-1 * (ln (den (env w) e) * 1) + 0) with (- ln (den (env w) e)) by ring. rewrite exp_Ropp, exp_ln by exact Pos. unfold Rdiv. ring.
  - destruct (_ && _)%bool eqn:H; [|discriminate]. apply andb_prop in H as [H K]. intros R1. apply Some_inj in R1; subst d.
    pose proof (loss_derive S par par_ok (slope_within n pr m i) e w H K (slope_within_ok S par par_ok n pr m i w P Re W)) as D.
    unfold Statements.env at 1. cbn [val]. exact (is_derive_unique _ _ _ (named_let S par par_ok pr zs k e w P B D)).
Qed.
Theorem gap_ok m i zs k c x w : reached S m i w -> gap pr m i zs k c = Some x -> den (env w) x = 0.
Proof.
  intros Re. unfold gap. intros H. assert (N : c <> Slope) by (intros ->; discriminate).
  assert (V : forall s e, body pr zs k = Some (s, e) -> env w (Named zs k c false) = worth_as s (den (env w) e)).
  { intros s e B. destruct c; [| |easy]; exact (name_value zs k s e w B). }
  destruct (body pr zs k) as [[s e]|]; [|now destruct c]. specialize (V s e eq_refl).
  destruct s; [now destruct c| |].
  - unfold guard in H. destruct (positive_at pr m i e) eqn:A; [|now destruct c]. pose proof (positive_at_ok S par par_ok pr m i e w P Re A) as Pos.
    replace x with (sub (mul (tidy e) (inverse_name zs k c)) one) by (destruct c; [| |easy]; now apply Some_inj).
    rewrite sub_ok, mul_ok, tidy_ok, one_ok by apply env_ok. unfold inverse_name. rewrite exp_ok. cbn [dlin dmon]. rewrite power_1, Q2R_m1, V.
    cbn [worth_as]. replace (-1 * (ln (den (env w) e) * 1) + 0) with (- ln (den (env w) e)) by ring. rewrite exp_Ropp, exp_ln by exact Pos. field. lra.
  - replace x with (sub (var_ (Named zs k c false)) (tidy e)) by (destruct c; [| |easy]; now apply Some_inj).
    rewrite sub_ok, tidy_ok, var_ok, V by apply env_ok. cbn [worth_as]. ring.
Qed.

(* ---------- regions are 0 or 1 ---------- *)
Lemma indicator_once x n : (1 <= n)%nat -> indicator x ^ n = indicator x.
Proof.
  intros N. unfold indicator. destruct (Rlt_dec 0 x); [apply pow1|]. destruct n as [|n]; [lia|]. cbn [pow]. ring.
Qed.
Lemma region_value v w : is_region pr v = true -> exists x, env w v = indicator x.
Proof.
  destruct v as [| |zs k [] sg]; try discriminate. cbn [is_region]. destruct (body pr zs k) as [[[] e]|] eqn:B; try discriminate.
  intros _. exists (den (env w) e). unfold Statements.env at 1. cbn [val]. destruct sg; exact (name_value zs k Region e w B).
Qed.
Theorem reduce_ok w a : den (env w) (reduce pr a) = den (env w) a.
Proof.
  unfold reduce. rewrite tidy_ok by apply env_ok.
  assert (M : forall m, dmon (env w) (map (fun '(v, n) => (v, if is_region pr v && (1 <=? n)%Z then 1%Z else n)) m) = dmon (env w) m).
  { induction m as [|[v n] m IH]; [reflexivity|]. cbn [map dmon]. rewrite IH. f_equal. destruct (is_region pr v && (1 <=? n)%Z)%bool eqn:G; [|reflexivity].
    apply andb_prop in G as [G N]. apply Z.leb_le in N. destruct (region_value v w G) as [x X]. rewrite power_1, X. unfold power.
    replace (invertible v) with false by (now destruct v). rewrite indicator_once; [reflexivity|lia]. }
  induction a as [|[[c m] e] a IH]; [reflexivity|]. cbn [map den dterm]. now rewrite IH, M.
Qed.

(* ---------- cells ---------- *)
Lemma region_of_ok c e w : region_of pr c = Some e -> names S (number c) (theta S) (theta S) (map w (at_slots_of c)) = indicator (den (env w) e).
Proof.
  unfold region_of. destruct (body pr (at_slots_of c) (number c)) as [[[] f]|] eqn:B; try discriminate. intros H. apply Some_inj in H; subst f.
  exact (name_value _ _ Region e w B).
Qed.
Lemma same_slots_ok zs ys : same_slots zs ys = true -> zs = ys.
Proof. unfold same_slots. destruct (ncmp _ _) eqn:Q; try discriminate. intros _. now apply ncmp_eq, slots_inj in Q. Qed.
Lemma same_choice_ok c d : same_choice c d = true -> c = d.
Proof.
  unfold same_choice. intros H. apply andb_prop in H as [H I]. apply andb_prop in H as [Z N]. apply same_slots_ok in Z.
  apply Nat.eqb_eq in N. apply eqb_prop in I. destruct c, d. cbn in *. now subst.
Qed.
Lemma assumes_ok x : assumes pr x = true -> match x with Above j => 0 < par j true | Apart m i e => forall w, reached S m i w -> den (env w) e <> 0
  | AtLeastZero m i e => forall w, reached S m i w -> 0 <= den (env w) e | _ => True end.
Proof.
  unfold assumes. intros H. apply existsb_exists in H as [y [I H]]. pose proof (proj2 (proj2 (proj2 (proj2 P))) y I) as Y.
  destruct x as [m i v|m i e|m i e|m i e|j]; [easy| | |easy|]; destruct y as [n j' u|n j' f|n j' f|n j' f|j']; try discriminate; cbn [fcmp is_so] in *.
  1, 2: destruct (pcmp m n) eqn:A; try discriminate; destruct (icmp i j') eqn:B; try discriminate; destruct (ecmp _ _) eqn:C; try discriminate;
    apply pcmp_eq in A; apply icmp_eq in B; apply ecmp_eq in C; subst; intros w W; specialize (Y w W); rewrite <- (tidy_ok (env w) (env_ok w)) in Y |- *;
    now rewrite C.
  apply Nat.eqb_eq in H. now subst.
Qed.
Lemma weighty_ok w t : weighty pr t = true -> 0 < dterm (env w) t.
Proof.
  destruct t as [[c m] e]. cbn [weighty dterm]. intros H. apply andb_prop in H as [C M].
  assert (Cp : 0 < Q2R c) by (unfold Q2R; apply Rmult_lt_0_compat; [apply IZR_lt; now apply Z.ltb_lt in C|apply Rinv_0_lt_compat, IZR_lt; lia]).
  apply Rmult_lt_0_compat; [apply Rmult_lt_0_compat; [exact Cp|]|apply exp_pos]. clear C Cp.
  induction m as [|[v k] m IH]; cbn [dmon forallb] in *; [lra|]. apply andb_prop in M as [K M]. apply Rmult_lt_0_compat; [|now apply IH]. clear IH M.
  assert (Pw : forall x, x <> 0 -> Z.even k = true -> 0 < powerRZ x k).
  { intros x X E. apply Z.even_spec in E as [j ->]. replace (2 * j)%Z with (j + j)%Z by ring. rewrite powerRZ_add by exact X.
    apply Rlt_0_sqr. now apply powerRZ_NOR. }
  destruct v as [z b sg|j []|]; [destruct z, b; try discriminate| |discriminate|discriminate].
  - unfold power. cbn [invertible]. apply powerRZ_lt. unfold Statements.env. cbn [val]. apply lt_0_INR. lia.
  - unfold power. cbn [invertible]. unfold Statements.env. cbn [val]. apply orb_prop in K as [K|K]; [apply Pw; [apply par_ok|exact K]|].
    apply powerRZ_lt. exact (assumes_ok (Above j) K).
Qed.

Section Cell.
Variables (m : measure) (i : index) (w : world S) (cell : list choice).
Hypothesis Re : reached S m i w.
(* a sample in the cell *)
Definition chosen_here (c : choice) : Prop := names S (number c) (theta S) (theta S) (map w (at_slots_of c)) = if inside_ c then 1 else 0.
Hypothesis here_in : forall c, In c cell -> chosen_here c.
Lemma bound_ok b e : bound_of pr m i cell b = Some e -> 0 <= den (env w) e /\ (strict pr m i b = true -> 0 < den (env w) e).
Proof.
  destruct b as [c|f]; cbn [bound_of strict].
  - destruct (existsb (same_choice c) cell) eqn:X; [|discriminate]. apply existsb_exists in X as [d [I X]]. apply same_choice_ok in X. subst d.
    pose proof (here_in c I) as Ch. unfold chosen_here in Ch. destruct (region_of pr c) as [r|] eqn:B; [|discriminate]. cbn [option_map].
    apply (eq_trans (eq_sym (region_of_ok c r w B))) in Ch. intros H. apply Some_inj in H; subst e.
    unfold indicator in Ch. destruct (inside_ c); destruct (Rlt_dec 0 (den (env w) r)) as [L|L]; try lra.
    + rewrite tidy_ok by apply env_ok. lra.
    + rewrite opp_ok, tidy_ok by apply env_ok. split; [lra|]. cbn [orb]. intros A. pose proof (assumes_ok (Apart m i r) A w Re). lra.
  - unfold guard. destruct (assumes pr (AtLeastZero m i f)) eqn:A; [|discriminate]. intros H. apply Some_inj in H; subst e.
    rewrite tidy_ok by apply env_ok. split; [exact (assumes_ok (AtLeastZero m i f) A w Re)|discriminate].
Qed.
Lemma bounds_ok l e : bounds_of pr m i cell l = Some e -> 0 <= den (env w) e /\ (forallb (strict pr m i) l = true -> 0 < den (env w) e).
Proof.
  revert e; induction l as [|b l IH]; intros e; cbn [bounds_of forallb].
  - intros H. apply Some_inj in H; subst e. rewrite one_ok by apply env_ok. split; intros; lra.
  - destruct (bound_of pr m i cell b) as [f|] eqn:B; [|discriminate]. destruct (bounds_of pr m i cell l) as [g|]; [|discriminate].
    intros H. apply Some_inj in H; subst e. destruct (bound_ok b f B) as [B1 B2]. destruct (IH g eq_refl) as [I1 I2]. rewrite mul_ok by apply env_ok.
    split; [now apply Rmult_le_pos|]. intros H. apply andb_prop in H as [H1 H2]. apply Rmult_lt_0_compat; auto.
Qed.
Lemma row_of_cell_ok r e : row_of_cell pr m i cell r = Some e -> 0 <= den (env w) e /\ (strictly pr m i r = true -> 0 < den (env w) e).
Proof.
  unfold row_of_cell, strictly. destruct (bounds_of pr m i cell (bounds r)) as [b|] eqn:B; [|discriminate].
  destruct (polynomial (tangent_ r)) as [u|] eqn:U; [|discriminate]. unfold guard. destruct (weighty pr (heavy r)) eqn:H; [|discriminate].
  intros X. apply Some_inj in X; subst e. destruct (bounds_ok _ _ B) as [B1 B2]. pose proof (weighty_ok w _ H) as Hp.
  rewrite !mul_ok, !tidy_ok by apply env_ok. cbn [den]. rewrite Rplus_0_r. set (s := den (env w) (square_ r)).
  assert (T : 0 <= den (env w) (match tangent_ r with [] => one | a => sub (sub (exp_ u) one) (tidy a) end)).
  { destruct (tangent_ r) as [|t a] eqn:E; [rewrite one_ok by apply env_ok; lra|]. rewrite <- E in *. clear E.
    rewrite !sub_ok, exp_ok, one_ok, tidy_ok by apply env_ok. rewrite (polynomial_ok (env w) _ u U). pose proof (exp_ineq1_le (den (env w) (tangent_ r))). lra. }
  split.
  - apply Rmult_le_pos; [|exact B1]. apply Rmult_le_pos; [lra|]. apply Rmult_le_pos; [apply Rle_0_sqr|exact T].
  - intros X. apply andb_prop in X as [X X3]. apply andb_prop in X as [X1 X2]. apply (equal_ok (env w) (env_ok w)) in X1.
    rewrite one_ok in X1 by apply env_ok. fold s in X1. destruct (tangent_ r); [|discriminate]. rewrite X1, one_ok by apply env_ok.
    specialize (B2 X3). rewrite !Rmult_1_r. now apply Rmult_lt_0_compat.
Qed.
Lemma rows_of_cell_ok l e : rows_of_cell pr m i cell l = Some e ->
  0 <= den (env w) e /\ (existsb (strictly pr m i) l = true -> 0 < den (env w) e).
Proof.
  revert e; induction l as [|r l IH]; intros e; cbn [rows_of_cell existsb].
  - intros H. apply Some_inj in H; subst e. cbn [den]. split; [lra|discriminate].
  - destruct (row_of_cell pr m i cell r) as [f|] eqn:B; [|discriminate]. destruct (rows_of_cell pr m i cell l) as [g|]; [|discriminate].
    intros H. apply Some_inj in H; subst e. destruct (row_of_cell_ok r f B) as [B1 B2]. destruct (IH g eq_refl) as [I1 I2]. rewrite add_ok by apply env_ok.
    split; [lra|]. intros H. apply orb_prop in H as [H|H]; [specialize (B2 H)|specialize (I2 H)]; lra.
Qed.
Lemma put_cell_ok a b : eparts (put_cell cell) a = Some b -> den (env w) b = den (env w) a.
Proof.
  apply (eparts_ok (put_cell cell) (env w) (env_ok w)). intros v e.
  destruct v as [| |zs k [] sg]; try discriminate. cbn [put_cell]. destruct (find _ cell) as [c|] eqn:F; [|discriminate].
  apply find_some in F as [I F]. apply andb_prop in F as [F1 F2]. apply same_slots_ok in F1. apply Nat.eqb_eq in F2. subst zs k. cbn [option_map].
  intros H. apply Some_inj in H; subst e. pose proof (here_in c I) as Ch. unfold chosen_here in Ch. rewrite konst_ok. unfold Statements.env. cbn [val].
  replace (if sg then theta S else theta S) with (theta S) by (now destruct sg). rewrite Ch. destruct (inside_ c); unfold Q2R; cbn; field.
Qed.
Lemma zero_in_cell x l : vanishes_in pr m i x cell l = true -> den (env w) x = 0.
Proof.
  unfold vanishes_in. intros H. apply andb_prop in H as [_ H]. destruct (rows_of_cell pr m i cell l) as [total|] eqn:T; [|discriminate].
  destruct (eparts _ total) as [T'|] eqn:S1; [|discriminate]. destruct (eparts _ (tidy x)) as [X|] eqn:S2; [|discriminate].
  apply put_cell_ok in S1, S2. rewrite tidy_ok in S2 by apply env_ok. destruct (rows_of_cell_ok l total T) as [R1 R2].
  apply orb_prop in H as [H|H].
  - apply andb_prop in H as [Z E]. apply R2 in E. apply (is_zero_ok (env w)) in Z. rewrite reduce_ok in Z. lra.
  - apply (is_zero_ok (env w)) in H. rewrite reduce_ok, add_ok, mul_ok in H by apply env_ok. rewrite S1, S2 in H. nra.
Qed.
End Cell.
Lemma product_zero w cell : (forall c, In c cell -> region_of pr c <> None) ->
  (forall c, In c cell -> chosen_here w c) \/ den (env w) (product_of cell) = 0.
Proof.
  induction cell as [|c cell IH]; intros H; [now left|]. destruct IH as [A|A]; [intros d D; apply H; now right| |].
  - destruct (region_of pr c) as [e|] eqn:B; [|exfalso; apply (H c (or_introl eq_refl) B)]. pose proof (region_of_ok c e w B) as V.
    assert (Z : chosen_here w c \/ den (env w) (product_of (c :: cell)) = 0).
    { cut (indicator (den (env w) e) = (if inside_ c then 1 else 0) \/ den (env w) (product_of (c :: cell)) = 0).
      { intros [Z|Z]; [left; exact (eq_trans V Z)|now right]. }
      cbn [product_of fold_right]. rewrite mul_ok by apply env_ok.
      assert (N : env w (Named (at_slots_of c) (number c) Still false) = indicator (den (env w) e)) by exact V. unfold indicator in *.
      destruct (Rlt_dec 0 (den (env w) e)); destruct (inside_ c); [left; reflexivity|right|right|left; reflexivity].
      - rewrite sub_ok, one_ok, var_ok, N by apply env_ok. ring.
      - rewrite var_ok, N. ring. }
    destruct Z as [Z|Z]; [left|now right]. intros d [<-|D]; [exact Z|now apply A].
  - right. cbn [product_of fold_right]. rewrite mul_ok by apply env_ok; fold (product_of cell). rewrite A. ring.
Qed.
Theorem vanishes_in_ok m i x cell l w : reached S m i w -> vanishes_in pr m i x cell l = true ->
  den (env w) (mul (product_of cell) (tidy x)) = 0.
Proof.
  intros Re H. rewrite mul_ok, tidy_ok by apply env_ok. destruct (product_zero w cell) as [A|A].
  - intros c C. unfold vanishes_in in H. apply andb_prop in H as [H _]. rewrite forallb_forall in H. specialize (H c C). now destruct (region_of pr c).
  - rewrite (zero_in_cell m i w cell Re A x l H). ring.
  - rewrite A. ring.
Qed.
End Soundness.
