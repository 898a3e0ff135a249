(* Finite models: trees of rational next-token probabilities with a direction of softmax logits at each node, in which a
   difference of two sides is enclosed (Elements.v).  A single sample is a sequence, of one token where there is one node. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Tokens Setting Ring Statements Stepwise Rules Existence Checker Softmax Completeness Combinations Enclosures Elements.
Import ListNotations.
Open Scope R_scope.

Record node := Node {
  qs : list Q; ps : list Q; mus : list Q; olds : list Q;   (* probabilities of tokens 0, 1, ... *)
  us : list Q; vs : list Q;                 (* two directions of the logits of q: theta moves along the first *)
  pays : list (list Q) }.                   (* R, A, H, M *)
Record model := Model {
  nodes : list (list nat * node);           (* by the prefixes that lead to them; elsewhere sequences end *)
  path : list nat;                          (* the sequence that a value is taken at *)
  values : list Q }.                        (* parameters *)
Definition distribution (n : nat) (l : list Q) : bool :=
  Nat.eqb (List.length l) n && forallb (fun c => 0 <? Qnum c)%Z l && Qeq_bool (fold_right Qplus 0%Q l) 1%Q.
Definition node_ok (d : node) : bool :=
  let n := List.length (qs d) in distribution n (qs d) && distribution n (ps d) && distribution n (mus d) && distribution n (olds d).
Definition same_prefix (u v : list nat) : bool := if list_eq_dec Nat.eq_dec u v then true else false.
Definition node_at (m : model) (u : list nat) : option node := option_map snd (find (fun x => same_prefix (fst x) u) (nodes m)).
Definition branches (m : model) (u : list nat) : list nat :=
  match node_at m u with Some d => seq 0 (List.length (qs d)) | None => [] end.
Definition some {A} (l : list A) : bool := match l with [] => false | _ => true end.
Definition valid (m : model) : bool :=
  forallb (fun x => node_ok (snd x)) (nodes m) && some (branches m []) && some (path m).
Definition look (l : list Q) (x : nat) : Q := nth x l 1%Q.
Definition looked (l : list Q) (x : nat) : R := Q2R (look l x).
Definition at_node (m : model) (f : node -> list Q) (u : list nat) (x : nat) : Q :=
  match node_at m u with Some d => look (f d) x | None => 1%Q end.
Definition parameter (m : model) (i : nat) (nz : bool) : Q :=
  let c := look (values m) i in if nz && qz c then 1%Q else c.
Definition model_par (m : model) (i : nat) (nz : bool) : R := Q2R (parameter m i nz).

Lemma looked_pos l x : forallb (fun c => 0 <? Qnum c)%Z l = true -> 0 < looked l x.
Proof.
  intros H. unfold looked, look. destruct (nth_in_or_default x l 1%Q) as [I| ->].
  - rewrite forallb_forall in H. now apply positive_Q, H.
  - rewrite Q2R_1. lra.
Qed.
Lemma looked_sum l : Sum (seq 0 (List.length l)) (looked l) = Q2R (fold_right Qplus 0%Q l).
Proof.
  enough (K : forall k l', (forall x, nth (k + x) l' 1%Q = nth x l 1%Q) ->
    Sum (seq k (List.length l)) (looked l') = Q2R (fold_right Qplus 0%Q l)) by (now apply K).
  induction l as [|c l IH]; intros k l' H; cbn [List.length seq Sum fold_right].
  - now rewrite Q2R_0.
  - rewrite Q2R_plus, (IH (Datatypes.S k)).
    + unfold looked at 1, look. specialize (H 0%nat). rewrite Nat.add_0_r in H. now rewrite H.
    + intros x. specialize (H (Datatypes.S x)). rewrite Nat.add_succ_r in H. exact H.
Qed.
Lemma distribution_ok n l : distribution n l = true -> (forall x, 0 < looked l x) /\ Sum (seq 0 n) (looked l) = 1.
Proof.
  unfold distribution. intros H. apply andb_prop in H as [H C]. apply andb_prop in H as [A B].
  apply Nat.eqb_eq in A. subst n. split; [intros; now apply looked_pos|].
  rewrite looked_sum. apply Qeq_bool_iff, Qeq_eqR in C. now rewrite C, Q2R_1.
Qed.
Lemma model_par_ok m i : model_par m i true <> 0.
Proof.
  unfold model_par, parameter. cbn [andb]. destruct (qz (look (values m) i)) eqn:Z; [rewrite Q2R_1; lra|].
  intros H. unfold qz in Z. apply Z.eqb_neq in Z. apply Z. unfold Q2R in H.
  apply Rmult_integral in H as [H|H]; [now apply eq_IZR|].
  assert (0 < / IZR (Zpos (Qden (look (values m) i)))) by (apply Rinv_0_lt_compat, IZR_lt; lia). lra.
Qed.

(* sums and products over segments *)
Fixpoint qsum (f : list nat -> nat -> Q) (u v : list nat) : Q :=
  match v with [] => 0%Q | a :: v => Qred (f u a + qsum f (u ++ [a]) v) end.
Fixpoint qproduct (f : list nat -> nat -> Q) (u v : list nat) : Q :=
  match v with [] => 1%Q | a :: v => Qred (f u a * qproduct f (u ++ [a]) v) end.
Definition qsums (f : list nat -> nat -> Q) (l : list (@segment nat)) : Q :=
  fold_right (fun x c => Qred (qsum f (fst x) (snd x) + c)) 0%Q l.
Definition qproducts (f : list nat -> nat -> Q) (l : list (@segment nat)) : Q :=
  fold_right (fun x c => Qred (qproduct f (fst x) (snd x) * c)) 1%Q l.
Definition real (f : list nat -> nat -> Q) (u : list nat) (a : nat) : R := Q2R (f u a).
Lemma qsum_ok f u v : Q2R (qsum f u v) = sum (real f) u v.
Proof. revert u; induction v as [|a v IH]; intros u; cbn [qsum sum]; [apply Q2R_0|]. now rewrite Q2R_red, Q2R_plus, IH. Qed.
Lemma qproduct_ok f u v : Q2R (qproduct f u v) = product (real f) u v.
Proof. revert u; induction v as [|a v IH]; intros u; cbn [qproduct product]; [apply Q2R_1|]. now rewrite Q2R_red, Q2R_mult, IH. Qed.
Lemma qsums_ok f l : Q2R (qsums f l) = Sum l (fun x => sum (real f) (fst x) (snd x)).
Proof. induction l as [|x l IH]; cbn [qsums fold_right Sum]; [apply Q2R_0|]. fold (qsums f l). now rewrite Q2R_red, Q2R_plus, qsum_ok, IH. Qed.
Lemma ln_qproducts f l : (forall u a, 0 < real f u a) -> 0 < Q2R (qproducts f l) /\
  ln (Q2R (qproducts f l)) = Sum l (fun x => ln (product (real f) (fst x) (snd x))).
Proof.
  intros P. induction l as [|x l [IH1 IH2]]; cbn [qproducts fold_right Sum]; [rewrite Q2R_1; split; [lra|apply ln_1]|].
  fold (qproducts f l). rewrite Q2R_red, Q2R_mult, qproduct_ok. pose proof (product_pos (real f) (fst x) (snd x) P).
  split; [now apply Rmult_lt_0_compat|]. now rewrite ln_mult, IH2.
Qed.

Section Model.
Variable m : model.
Hypothesis ok : valid m = true.
Notation next := (branches m).
Lemma node_at_ok u d : node_at m u = Some d -> node_ok d = true.
Proof.
  unfold node_at. destruct (find _ (nodes m)) as [[v e]|] eqn:F; [|discriminate]. intros [= <-]. apply find_some in F as [F _].
  unfold valid in ok. apply andb_prop in ok as [H _]. apply andb_prop in H as [H _]. rewrite forallb_forall in H. exact (H _ F).
Qed.
Lemma starts_ok : next [] <> [].
Proof. unfold valid in ok. apply andb_prop in ok as [H _]. apply andb_prop in H as [_ H]. now destruct (next []). Qed.
Lemma path_ok : path m <> [].
Proof. unfold valid in ok. apply andb_prop in ok as [_ H]. now destruct (path m). Qed.
Definition row_of (k : measure) : node -> list Q := match k with Mp => ps | Mmu => mus | _ => qs end.
Definition chance (k : measure) : list nat -> nat -> Q := at_node m (row_of k).
Lemma row_ok k d : node_ok d = true -> distribution (List.length (qs d)) (row_of k d) = true.
Proof. unfold node_ok. intros H. apply andb_prop in H as [H D]. apply andb_prop in H as [H C]. apply andb_prop in H as [A B]. now destruct k. Qed.
Lemma old_ok d : node_ok d = true -> distribution (List.length (qs d)) (olds d) = true.
Proof. unfold node_ok. intros H. now apply andb_prop in H as [H D]. Qed.
Lemma rows_pos row u a : (forall d, node_ok d = true -> distribution (List.length (qs d)) (row d) = true) -> 0 < real (at_node m row) u a.
Proof.
  intros R1. unfold real, at_node. destruct (node_at m u) as [d|] eqn:N; [|rewrite Q2R_1; lra].
  apply (distribution_ok _ _ (R1 d (node_at_ok u d N))).
Qed.
Lemma rows_sum row u : (forall d, node_ok d = true -> distribution (List.length (qs d)) (row d) = true) ->
  next u <> [] -> Sum (next u) (real (at_node m row) u) = 1.
Proof.
  intros R1. unfold branches. destruct (node_at m u) as [d|] eqn:N; [|easy]. intros _.
  rewrite <- (proj2 (distribution_ok _ _ (R1 d (node_at_ok u d N)))). apply Sum_ext; intros a _.
  unfold real, at_node. now rewrite N.
Qed.
Lemma chance_pos k u a : 0 < real (chance k) u a. Proof. apply rows_pos, row_ok. Qed.
Lemma chance_sum k u : next u <> [] -> Sum (next u) (real (chance k) u) = 1. Proof. apply rows_sum, row_ok. Qed.
Notation third := (at_node m olds).
Lemma third_pos u a : 0 < real third u a. Proof. apply rows_pos, old_ok. Qed.
Lemma third_sum u : next u <> [] -> Sum (next u) (real third u) = 1. Proof. apply rows_sum, old_ok. Qed.
Definition reward (i : nat) : list nat -> nat -> Q := at_node m (fun d => nth i (pays d) []).
(* the size of a batch, where a parameter stands for it *)
Definition batch (a : assumptions) : nat :=
  match batch_size (assumed a) with Some (j, nz) => Nat.max 2 (Z.to_nat (Qnum (parameter m j nz))) | None => 2 end.
(* the score functions of a token, along each direction *)
Definition tilt_along (row : node -> list Q) (u : list nat) (a : nat) : Q :=
  Qred (at_node m row u a - fold_right Qplus 0%Q (map (fun y => chance Mq u y * at_node m row u y)%Q (next u))).
Definition tilt : list nat -> nat -> Q := tilt_along us.
Definition tilt_v : list nat -> nat -> Q := tilt_along vs.
(* the score function along the second direction, in the place of the generic function 0 *)
Definition second_score (i d : nat) (_ : R) (x : @segment nat) : R :=
  match i, d with O, O => sum (real tilt_v) (fst x) (snd x) | _, _ => 0 end.
Lemma second_score_diff i d l x : is_derive (fun l => second_score i d l x) l (second_score i (Datatypes.S d) l x).
Proof. destruct i, d; cbn [second_score]; apply derive_const. Qed.
Variable size : nat.
Variable named : nat -> R -> R -> list (list (@segment nat)) -> R.
Definition model_setting : setting :=
  softmax nat next (List.length (nodes m)) starts_ok (fun _ => path m) (fun _ => path_ok)
    (real (chance Mq)) (real (at_node m us)) (real (chance Mp)) (real (chance Mmu))
    (chance_pos Mq) (chance_pos Mp) (chance_sum Mp) (chance_pos Mmu) (chance_sum Mmu) (real third) third_pos third_sum
    (fun i => real (reward i)) (fun _ l => Q2R (qsums (reward 1) l))
    (Nat.max 2 size) (Nat.le_max_l 2 size) second_score second_score_diff named.
Notation S := model_setting. Notation par := (model_par m).
Notation X := (@segment nat).

Definition count_tokens (l : list X) : nat := List.length (flat_map snd l).
Definition value_at (w : slot -> list X) (v : var) : option Q :=
  match v with
  | Sample Whole Length _ => Some (inject_Z (Z.of_nat (Nat.max 1 (count_tokens (w Whole)))))
  | Sample z Length _ => Some (inject_Z (Z.of_nat (count_tokens (w z))))
  | Sample z (Given i) _ => Some (qsums (reward i) (w z)) | Sample z Any _ => Some (qsums (reward 1) (w z))
  | Sample z Score _ => Some (qsums tilt (w z)) | Sample z (Fn O O) _ => Some (qsums tilt_v (w z))
  | Par i nz => Some (parameter m i nz) | _ => None end.
Definition ratio_at (w : slot -> list X) (v : var) : option Q :=
  match v with
  | Sample z K1 _ => Some (Qred (qproducts (chance Mq) (w z) / qproducts (chance Mp) (w z)))
  | Sample z ToOld _ => Some (Qred (qproducts (chance Mq) (w z) / qproducts third (w z)))
  | Sample z W _ => Some (Qred (qproducts (chance Mq) (w z) / qproducts (chance Mmu) (w z)))
  | Sample z LogQ _ => Some (qproducts (chance Mq) (w z)) | _ => None end.
Lemma tilt_ok u a : s S (u, [a]) = Q2R (tilt u a).
Proof.
  unfold S. rewrite softmax_score by apply chance_sum. unfold tilt, tilt_along. rewrite Q2R_red, Q2R_minus. f_equal.
  generalize (next u) as l. induction l as [|y l IH]; cbn [Sum map fold_right]; [now rewrite Q2R_0|].
  rewrite Q2R_plus, Q2R_mult, IH. reflexivity.
Qed.
Lemma score_ok (x : X) : s S x = sum (real tilt) (fst x) (snd x).
Proof.
  destruct x as [u v]. cbn [fst snd]. revert u; induction v as [|a v IH]; intros u; cbn [sum].
  - apply (additive_nil (s S) u (score_adds S)).
  - etransitivity; [exact (score_adds S u [a] v)|]. f_equal; [apply tilt_ok|apply IH].
Qed.
Lemma tokens_ok (l : list X) : INR (count_tokens l) = Sum l (fun x => INR (List.length (snd x))).
Proof.
  unfold count_tokens. induction l as [|x l IH]; [reflexivity|]. cbn [flat_map Sum]. now rewrite app_length, plus_INR, IH.
Qed.
Lemma Q2R_nat' n : Q2R (inject_Z (Z.of_nat n)) = INR n. Proof. apply Q2R_nat. Qed.
Lemma value_at_ok (w : world S) v c : value_at w v = Some c -> env S par w v = Q2R c.
Proof.
  destruct v as [z b sg|i nz|]; [|now intros [= <-]|discriminate]. destruct b; try (destruct z; discriminate).
  - assert (K : z = Whole \/ z <> Whole) by (destruct z; auto; right; discriminate). destruct K as [->|K].
    + cbn [value_at]. intros [= <-]. rewrite Q2R_nat'. reflexivity.
    + intros H. replace c with (inject_Z (Z.of_nat (count_tokens (w z)))) by (destruct z; try (now destruct K); now injection H).
      rewrite Q2R_nat', tokens_ok. destruct z; try (now destruct K); reflexivity.
  - intros H. replace c with (qsums (reward 1) (w z)) by (destruct z; now injection H). destruct z; reflexivity.
  - intros H. replace c with (qsums tilt (w z)) by (destruct z; now injection H). rewrite env_sum by easy. cbn [each].
    rewrite qsums_ok. apply Sum_ext; intros x _. apply score_ok.
  - intros H. replace c with (qsums (reward i) (w z)) by (destruct z; now injection H). rewrite env_sum by easy. cbn [each].
    rewrite qsums_ok. reflexivity.
  - intros H. destruct i; [|destruct z; discriminate]. destruct d; [|destruct z; discriminate].
    replace c with (qsums tilt_v (w z)) by (destruct z; now injection H). rewrite env_sum by easy. cbn [each].
    rewrite qsums_ok. reflexivity.
Qed.
Lemma model_q (x : X) : q0 S x = product (real (chance Mq)) (fst x) (snd x).
Proof. unfold S. apply softmax_q, chance_sum. Qed.
Lemma ratio_at_ok (w : world S) v r : ratio_at w v = Some r -> value_at w v = None -> 0 < Q2R r -> env S par w v = ln (Q2R r).
Proof.
  destruct v as [z b sg|i nz|]; try discriminate.
  destruct (ln_qproducts (chance Mq) (w z) (chance_pos Mq)) as [Q1 Q2]. destruct (ln_qproducts (chance Mp) (w z) (chance_pos Mp)) as [P1 P2].
  destruct (ln_qproducts (chance Mmu) (w z) (chance_pos Mmu)) as [M1 M2]. destruct (ln_qproducts third (w z) third_pos) as [O1 O2].
  destruct b; cbn [ratio_at]; try discriminate; intros R _ _; injection R as <-; rewrite env_sum by easy; cbn [each].
  - rewrite Q2R_red, Q2R_div by (apply nonzero_Q; lra). rewrite ln_div, Q2, P2 by assumption. rewrite <- Sum_minus.
    apply Sum_ext; intros x _. now rewrite model_q.
  - rewrite Q2R_red, Q2R_div by (apply nonzero_Q; lra). rewrite ln_div, Q2, M2 by assumption. rewrite <- Sum_minus.
    apply Sum_ext; intros x _. now rewrite model_q.
  - rewrite Q2. apply Sum_ext; intros x _. now rewrite model_q.
  - rewrite Q2R_red, Q2R_div by (apply nonzero_Q; lra). rewrite ln_div, Q2, O2 by assumption. rewrite <- Sum_minus.
    apply Sum_ext; intros x _. now rewrite model_q.
Qed.

(* ---------- names: a region where the sign is certain, an element and the argument of a log where they are exact ---------- *)
Variable a : assumptions.
Notation pr := (assumed a).
Definition exactly (i : itv) : option Q := if Qeq_bool (fst i) (snd i) then Some (fst i) else None.
Definition told_as (s : standing) (i : itv) : option Q * option Q :=   (* the value, or what it is the log of *)
  match s with
  | Region => (if (0 <? Qnum (fst i))%Z then Some 1%Q else if (Qnum (snd i) <=? 0)%Z then Some 0%Q else None, None)
  | Let => (exactly i, None) | Log => (None, exactly i) end.
Fixpoint both_at (n : nat) (w : slot -> list X) (v : var) : option Q * option Q :=
  match v with
  | Named zs k (Still | Moving) _ => match n, body pr zs k with
      | Datatypes.S n, Some (s, e) => match iep (fun v => fst (both_at n w v)) (fun v => snd (both_at n w v)) e with
          | Some i => told_as s i | None => (None, None) end
      | _, _ => (None, None) end
  | _ => (value_at w v, ratio_at w v) end.
Hypothesis named_ok : defined S par (definitions pr).
Lemma exactly_ok i c x : exactly i = Some c -> inside i x -> x = Q2R c.
Proof.
  unfold exactly, inside. destruct (Qeq_bool (fst i) (snd i)) eqn:E; [|discriminate]. apply Qeq_bool_iff, Qeq_eqR in E.
  intros [= <-] [A B]. lra.
Qed.
Lemma told_as_ok s i x : inside i x -> (forall c, fst (told_as s i) = Some c -> worth_as s x = Q2R c) /\
  (forall r, snd (told_as s i) = Some r -> worth_as s x = ln (Q2R r)).
Proof.
  intros I. destruct s; cbn [told_as fst snd worth_as]; split; try discriminate; intros c.
  - unfold indicator. destruct (0 <? Qnum (fst i))%Z eqn:A; [|destruct (Qnum (snd i) <=? 0)%Z eqn:B; [|discriminate]]; intros [= <-]; destruct I as [I1 I2].
    + apply positive_Q in A. destruct (Rlt_dec 0 x); [now rewrite Q2R_1|lra].
    + apply Z.leb_le in B. assert (Q2R (snd i) <= 0).
      { unfold Q2R. apply IZR_le in B. assert (0 < / IZR (Zpos (Qden (snd i)))) by (apply Rinv_0_lt_compat, IZR_lt; lia). nra. }
      destruct (Rlt_dec 0 x); [lra|now rewrite Q2R_0].
  - intros E. now rewrite (exactly_ok i c x E I).
  - intros E. exact (exactly_ok i c x E I).
Qed.
Lemma both_ok n (w : world S) v : (forall c, fst (both_at n w v) = Some c -> env S par w v = Q2R c) /\
  (forall r, snd (both_at n w v) = Some r -> fst (both_at n w v) = None -> 0 < Q2R r -> env S par w v = ln (Q2R r)).
Proof.
  revert v. assert (Plain : forall v, (forall c, value_at w v = Some c -> env S par w v = Q2R c) /\
    (forall r, ratio_at w v = Some r -> value_at w v = None -> 0 < Q2R r -> env S par w v = ln (Q2R r))).
  { intros v. split; [intros c; apply value_at_ok|intros r; apply ratio_at_ok]. }
  assert (None_at : forall v : var, (forall c, @fst (option Q) (option Q) (None, None) = Some c -> env S par w v = Q2R c) /\
    (forall r, @snd (option Q) (option Q) (None, None) = Some r -> @fst (option Q) (option Q) (None, None) = None -> 0 < Q2R r -> env S par w v = ln (Q2R r))).
  { intros v. split; discriminate. }
  induction n as [|n IH]; intros v; (destruct v as [z b sg|j nz|zs k c sg]; [exact (Plain (Sample z b sg))|exact (Plain (Par j nz))|]);
    (destruct c; cbn [both_at]; [| |exact (Plain (Named zs k Slope sg))]); try apply None_at;
    destruct (body pr zs k) as [[s e]|] eqn:B; try apply None_at;
    destruct (iep _ _ e) as [i|] eqn:I; try apply None_at;
    (apply (iep_ok _ _ (env S par w)) in I;
      [|apply env_ok, model_par_ok|intros u c; apply (proj1 (IH u))|intros u r; apply (proj2 (IH u))]);
    destruct (told_as_ok s i _ I) as [V1 V2];
    (assert (N : forall c', c' <> Slope -> env S par w (Named zs k c' sg) = worth_as s (den (env S par w) e)) by
      (intros c' C; pose proof (body_ok S par (model_par_ok m) pr zs k s e named_ok B (theta S) (theta S) w) as D; destruct c', sg; try easy;
        (etransitivity; [exact D|now destruct s])));
    rewrite N by discriminate; split; [exact V1| |exact V1|]; intros r R1 _ _; exact (V2 r R1).
Qed.

(* means over sequences, and over their steps *)
Fixpoint isum (l : list (option itv)) : option itv :=
  match l with [] => Some (exact 0) | Some i :: l => match isum l with Some j => Some (iadd i j) | None => None end
  | None :: _ => None end.
Definition weight_at (k : measure) (x : X) : Q :=
  match k with Mq | Mp | Mmu => qproduct (chance k) (fst x) (snd x) | _ => 1%Q end.
Definition drawn_as (x : X) (z : slot) : list X := match z with Whole => [x] | _ => [] end.
Definition standing (x : X) (c : place) (z : slot) : list X :=
  match z with Past => [past_ c] | Now => [now_ c] | Future => [future_ c] | _ => drawn_as x z end.
Definition inner (i : index) (f : (slot -> list X) -> option itv) (x : X) : option itv :=
  match i with
  | Single => f (drawn_as x)
  | Steps => isum (map (fun c => f (standing x c)) (places x))
  | _ => None end.
Definition all_sequences : list X := map (pair []) (walk next (Datatypes.S (List.length (nodes m))) []).
Definition chosen (k : measure) : list X := match k with Msample => [([], path m)] | _ => all_sequences end.
Definition imean (i : index) (k : measure) (f : (slot -> list X) -> option itv) : option itv :=
  match i with
  | Single | Steps => isum (map (fun x => option_map (iscale (weight_at k x)) (inner i f x)) (chosen k))
  | _ => None end.
Definition at_world (e : ep) (w : slot -> list X) : option itv :=
  iep (fun v => fst (both_at (depth pr) w v)) (fun v => snd (both_at (depth pr) w v)) e.
Definition iatom (x : atom) : option itv := match x with Mean i k a => imean i k (at_world a) | _ => None end.
Fixpoint iproduct (l : list atom) : option itv :=
  match l with [] => Some (exact 1)
  | x :: l => match iatom x, iproduct l with Some i, Some j => Some (imul i j) | _, _ => None end end.
Definition no_ratio (_ : var) : option Q := None.
Definition par_value (v : var) : option Q := match v with Par i nz => Some (parameter m i nz) | _ => None end.
Fixpoint iside (b : side) : option itv :=
  match b with [] => Some (exact 0)
  | (c, l) :: b => match iep par_value no_ratio c, iproduct l, iside b with
      | Some i, Some j, Some k => Some (iadd (imul i j) k) | _, _, _ => None end end.

Let parS_ok : forall i, par i true <> 0. Proof. apply model_par_ok. Qed.
Lemma isum_ok {Y} (f : Y -> option itv) (g : Y -> R) l i : (forall y j, f y = Some j -> inside j (g y)) ->
  isum (map f l) = Some i -> inside i (Sum l g).
Proof.
  intros H. revert i; induction l as [|y l IH]; intros i; cbn [map isum Sum].
  - intros [= <-]. rewrite <- Q2R_0. apply exact_ok.
  - destruct (f y) as [e|] eqn:Y1; [|discriminate]. destruct (isum (map f l)); [|discriminate].
    intros [= <-]. apply iadd_ok; [now apply H|now apply IH].
Qed.
Lemma weight_ok k x : density S k (theta S) x = Q2R (weight_at k x).
Proof.
  destruct k; cbn [weight_at]; rewrite ?qproduct_ok, ?Q2R_1; try reflexivity. apply model_q.
Qed.
Lemma imean_ok i k f (F : world S -> R) e : (forall (w v : world S) j, (forall z, w z = v z) -> f w = Some j -> inside j (F v)) ->
  imean i k f = Some e -> inside e (mean S k i F).
Proof.
  intros Ok H. assert (C : support S k 0 = chosen k) by now destruct k.
  assert (In : i = Single \/ i = Steps -> forall (g : X -> R), (forall x j, inner i f x = Some j -> inside j (g x)) ->
    inside e (Sum (chosen k) (fun x => density S k (theta S) x * g x))).
  { intros J g G. assert (K : isum (map (fun x => option_map (iscale (weight_at k x)) (inner i f x)) (chosen k)) = Some e)
      by (destruct J as [-> | ->]; exact H). clear H. revert K. apply isum_ok. intros x j. destruct (inner i f x) as [b|] eqn:B; [|discriminate].
    intros [= <-]. rewrite weight_ok. now apply iscale_ok, G. }
  destruct i; try discriminate; cbn [inner] in *.
  - unfold mean, mean_at. cbn [draws E spread stepwise]. rewrite C. apply In; [now left|]. intros x j.
    apply Ok. intros []; reflexivity.
  - unfold mean. rewrite stepwise_mean, C by reflexivity. apply In; [now right|]. intros x j. apply isum_ok. intros c b.
    apply Ok. intros []; reflexivity.
Qed.
Lemma same_world (w v : world S) e i : (forall z, w z = v z) -> at_world e w = Some i -> inside i (den (env S par v) e).
Proof.
  intros H I. rewrite <- (den_ext (env S par w) (env S par v)).
  - revert I. apply iep_ok; [now apply env_ok|intros u c; apply (proj1 (both_ok (depth pr) w u))|intros u r; apply (proj2 (both_ok (depth pr) w u))].
  - intros [z b sg|j nz|zs j c sg]; [|reflexivity|]; unfold env.
    + destruct z, b; cbn [val]; now rewrite H.
    + cbn [val]. now rewrite (map_ext w v H).
Qed.
Lemma iproduct_ok l i : iproduct l = Some i -> inside i (dproduct S par l).
Proof.
  revert i; induction l as [|x l IH]; intros i; cbn [iproduct dproduct].
  - intros [= <-]. rewrite <- Q2R_1. apply exact_ok.
  - destruct (iatom x) as [e|] eqn:X; [|discriminate]. destruct (iproduct l); [|discriminate].
    intros [= <-]. apply imul_ok; [|now apply IH]. destruct x as [j k e'| |]; try discriminate.
    revert X. apply imean_ok. intros w v j'. apply same_world.
Qed.
Lemma iside_ok b i : iside b = Some i -> inside i (dside S par b).
Proof.
  revert i; induction b as [|[c l] b IH]; intros i; cbn [iside dside].
  - intros [= <-]. rewrite <- Q2R_0. apply exact_ok.
  - destruct (iep _ _ c) as [e|] eqn:X; [|discriminate]. destruct (iproduct l) eqn:P; [|discriminate].
    destruct (iside b); [|discriminate]. intros [= <-]. apply iadd_ok; [|now apply IH].
    apply imul_ok; [|now apply iproduct_ok]. revert X. apply iep_ok.
    + apply penv_ok, parS_ok.
    + intros [|i' nz|] d; cbn; try discriminate. now intros [= <-].
    + discriminate.
Qed.

(* ---------- a refutation ---------- *)
Definition contradicts (r : relation) (i : itv) : bool :=
  (0 <? Qnum (fst i))%Z || match r with Equal => (Qnum (snd i) <? 0)%Z | AtMost => false end.
Lemma contradicts_ok r i x : contradicts r i = true -> inside i x ->
  match r with Equal => x <> 0 | AtMost => 0 < x end.
Proof.
  unfold contradicts, inside. intros H [A B]. apply orb_prop in H as [H|H].
  - apply positive_Q in H. destruct r; lra.
  - destruct r; [|discriminate]. apply Z.ltb_lt in H.
    assert (0 < Q2R (Qopp (snd i))) by (apply positive_Q, Z.ltb_lt; cbn; lia). rewrite Q2R_opp in *. lra.
Qed.
(* premises, which a model need not satisfy: here those that enclose to 0 = 0, as n = 1 + m does *)
Definition zero_here (x : side * side) : bool :=
  match iside (normal (fst x ++ minus (snd x))) with Some i => Qeq_bool (fst i) 0 && Qeq_bool (snd i) 0 | None => false end.
Definition size_here : bool :=
  match batch_size (assumed a) with
  | Some (j, nz) => Qeq_bool (parameter m j nz) (inject_Z (Z.of_nat (Nat.max 2 size))) | None => true end.
(* facts about parameters *)
Definition fact_here (x : fact) : bool :=
  match x with
  | AtLeastZero _ _ e => match iep par_value no_ratio e with Some i => (0 <=? Qnum (fst i))%Z | None => false end
  | _ => false end.
Definition satisfies : bool :=
  match equal_always (assumed a), regions a with [], [] => true | _, _ => false end && forallb fact_here (facts (assumed a))
  && forallb zero_here (equal_now (assumed a)) && size_here && forallb (fun i => 0 <? Qnum (look (values m) i))%Z (positive a).
Lemma zero_here_ok x : zero_here x = true -> dside S par (fst x) = dside S par (snd x).
Proof.
  unfold zero_here. destruct (iside _) as [i|] eqn:I; [|discriminate]. intros H. apply andb_prop in H as [A B].
  apply Qeq_bool_iff, Qeq_eqR in A, B. apply iside_ok in I. unfold inside in I.
  rewrite (normal_ok S par parS_ok), app_ok, (minus_ok S par parS_ok), A, B, Q2R_0 in I. lra.
Qed.
Lemma satisfies_ok : satisfies = true -> satisfied S par a.
Proof.
  unfold satisfies, satisfied, holds, size_here. intros H. apply andb_prop in H as [H P]. apply andb_prop in H as [H Z].
  apply andb_prop in H as [H N]. apply andb_prop in H as [H F]. destruct (equal_always (assumed a)); [|discriminate].
  destruct (regions a); [|discriminate]. rewrite forallb_forall in N, P, F. repeat split; try easy; [| | |].
  - intros x y I. apply (zero_here_ok (x, y)), N, I.
  - intros j nz B. rewrite B in Z. apply Qeq_bool_iff, Qeq_eqR in Z. unfold model_par. rewrite Z.
    change (Setting.size S) with (Nat.max 2 size). rewrite INR_IZR_INZ. unfold inject_Z, Q2R. cbn [Qnum Qden]. field.
  - intros x I. pose proof (F x I) as Fx. destruct x as [| |k i e| |]; try discriminate. cbn [fact_here is_so] in *. intros w _.
    destruct (iep par_value no_ratio e) as [j|] eqn:E; [|discriminate]. apply (iep_ok _ _ (env S par w)) in E.
    + apply Z.leb_le in Fx. destruct E as [E _]. assert (0 <= Q2R (fst j)); [|lra]. unfold Q2R. apply Rmult_le_pos; [now apply IZR_le|].
      left. apply Rinv_0_lt_compat, IZR_lt. lia.
    + now apply env_ok.
    + intros [|i' nz|] d; cbn; try discriminate. now intros [= <-].
    + discriminate.
  - intros i I. pose proof (P i I) as Q. unfold model_par, parameter. cbn [andb]. destruct (qz _) eqn:Y; [rewrite Q2R_1; lra|now apply positive_Q].
Qed.
Definition refutes (known : list side) (c : part) : bool :=
  satisfies && match rows c, zeros (assumed a) known (proof c) with
  | [], Some z => match iside (normal (left c ++ minus (right c) ++ z)) with
      | Some i => contradicts (rel c) i | None => false end
  | _, _ => false end.
Lemma refutes_ok known c : List.Forall (fun z => dside S par z = 0) known -> refutes known c = true ->
  satisfied S par a /\ ~ true_part S par c.
Proof.
  intros K. unfold refutes. intros H. apply andb_prop in H as [A H]. pose proof (satisfies_ok A) as Sa.
  split; [exact Sa|]. destruct (rows c); [|discriminate].
  destruct (zeros (assumed a) known (proof c)) as [z|] eqn:Z; [|discriminate].
  destruct (iside _) as [i|] eqn:I; [|discriminate]. apply iside_ok in I.
  pose proof (contradicts_ok _ _ _ H I) as C.
  rewrite (normal_ok S par parS_ok), !app_ok, (minus_ok S par parS_ok) in C.
  rewrite (zeros_ok S par parS_ok _ _ _ _ (proj1 Sa) K Z) in C.
  unfold true_part. destruct (rel c); lra.
Qed.
End Model.
(* a model of which the names are given what they stand for *)
Lemma model_names m ok n a : ordered (definitions (assumed a)) = true ->
  exists N, defined (model_setting m ok n N) (model_par m) (definitions (assumed a)).
Proof.
  intros O. destruct (names_exist (model_setting m ok n (fun _ _ _ _ => 0)) (model_par m) (definitions (assumed a)) O) as [N D].
  exists N. exact D.
Qed.
