(* Finite models: trees of rational next-token probabilities with a direction of softmax logits at each node, in which a
   difference of two sides is enclosed (Elements.v).  A single sample is a sequence, of one token where there is one node. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Tokens Setting Ring Statements Stepwise Rules Checker Softmax Completeness Combinations Enclosures Elements.
Import ListNotations.
Open Scope R_scope.

Record node := Node {
  qs : list Q; ps : list Q; mus : list Q;   (* probabilities of tokens 0, 1, ... *)
  us : list Q; vs : list Q;                 (* two directions of the logits of q: theta moves along the first *)
  pays : list (list Q) }.                   (* R, A, H, M *)
Record model := Model {
  nodes : list (list nat * node);           (* by the prefixes that lead to them; elsewhere sequences end *)
  path : list nat;                          (* the sequence that a value is taken at *)
  values : list Q }.                        (* parameters *)
Definition distribution (n : nat) (l : list Q) : bool :=
  Nat.eqb (List.length l) n && forallb (fun c => 0 <? Qnum c)%Z l && Qeq_bool (fold_right Qplus 0%Q l) 1%Q.
Definition node_ok (d : node) : bool :=
  let n := List.length (qs d) in distribution n (qs d) && distribution n (ps d) && distribution n (mus d).
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
Proof. unfold node_ok. intros H. apply andb_prop in H as [H C]. apply andb_prop in H as [A B]. now destruct k. Qed.
Lemma chance_pos k u a : 0 < real (chance k) u a.
Proof.
  unfold real, chance, at_node. destruct (node_at m u) as [d|] eqn:N; [|rewrite Q2R_1; lra].
  apply (distribution_ok _ _ (row_ok k d (node_at_ok u d N))).
Qed.
Lemma chance_sum k u : next u <> [] -> Sum (next u) (real (chance k) u) = 1.
Proof.
  unfold branches. destruct (node_at m u) as [d|] eqn:N; [|easy]. intros _.
  rewrite <- (proj2 (distribution_ok _ _ (row_ok k d (node_at_ok u d N)))). apply Sum_ext; intros a _.
  unfold real, chance, at_node. now rewrite N.
Qed.
Definition reward (i : nat) : list nat -> nat -> Q := at_node m (fun d => nth i (pays d) []).
(* the size of a batch, where a parameter stands for it *)
Definition batch (a : assumptions) : nat :=
  match batch_size (assumed a) with Some (j, nz) => Nat.max 2 (Z.to_nat (Qnum (parameter m j nz))) | None => 2 end.
Variable size : nat.
Definition model_setting : setting :=
  softmax nat next (List.length (nodes m)) starts_ok (fun _ => path m) (fun _ => path_ok)
    (real (chance Mq)) (real (at_node m us)) (real (chance Mp)) (real (chance Mmu))
    (chance_pos Mq) (chance_pos Mp) (chance_sum Mp) (chance_pos Mmu) (chance_sum Mmu)
    (fun i => real (reward i)) (fun _ l => Q2R (qsums (reward 1) l))
    (Nat.max 2 size) (Nat.le_max_l 2 size) (fun _ _ _ _ => 0) (fun _ _ l _ => derive_const 0 l).
Notation S := model_setting. Notation par := (model_par m).
Notation X := (@segment nat).

Definition tilt (u : list nat) (a : nat) : Q :=   (* the score function of a token *)
  Qred (at_node m us u a - fold_right Qplus 0%Q (map (fun y => chance Mq u y * at_node m us u y)%Q (next u))).
Definition count_tokens (l : list X) : nat := List.length (flat_map snd l).
Definition value_at (w : slot -> list X) (v : var) : option Q :=
  match v with
  | Sample Whole Length _ => Some (inject_Z (Z.of_nat (Nat.max 1 (count_tokens (w Whole)))))
  | Sample z Length _ => Some (inject_Z (Z.of_nat (count_tokens (w z))))
  | Sample z (Given i) _ => Some (qsums (reward i) (w z)) | Sample z Any _ => Some (qsums (reward 1) (w z))
  | Sample z Score _ => Some (qsums tilt (w z))
  | Par i nz => Some (parameter m i nz) | _ => None end.
Definition ratio_at (w : slot -> list X) (v : var) : option Q :=
  match v with
  | Sample z K1 _ => Some (Qred (qproducts (chance Mq) (w z) / qproducts (chance Mp) (w z)))
  | Sample z W _ => Some (Qred (qproducts (chance Mq) (w z) / qproducts (chance Mmu) (w z)))
  | Sample z LogQ _ => Some (qproducts (chance Mq) (w z)) | _ => None end.
Lemma tilt_ok u a : s S (u, [a]) = Q2R (tilt u a).
Proof.
  unfold S. rewrite softmax_score by apply chance_sum. unfold tilt. rewrite Q2R_red, Q2R_minus. f_equal.
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
  destruct v as [z b sg|i nz]; [|now intros [= <-]]. destruct b; try (destruct z; discriminate).
  - assert (K : z = Whole \/ z <> Whole) by (destruct z; auto; right; discriminate). destruct K as [->|K].
    + cbn [value_at]. intros [= <-]. rewrite Q2R_nat'. reflexivity.
    + intros H. replace c with (inject_Z (Z.of_nat (count_tokens (w z)))) by (destruct z; try (now destruct K); now injection H).
      rewrite Q2R_nat', tokens_ok. destruct z; try (now destruct K); reflexivity.
  - intros H. replace c with (qsums (reward 1) (w z)) by (destruct z; now injection H). destruct z; reflexivity.
  - intros H. replace c with (qsums tilt (w z)) by (destruct z; now injection H). rewrite env_sum by easy. cbn [each].
    rewrite qsums_ok. apply Sum_ext; intros x _. apply score_ok.
  - intros H. replace c with (qsums (reward i) (w z)) by (destruct z; now injection H). rewrite env_sum by easy. cbn [each].
    rewrite qsums_ok. reflexivity.
Qed.
Lemma model_q (x : X) : q0 S x = product (real (chance Mq)) (fst x) (snd x).
Proof. unfold S. apply softmax_q, chance_sum. Qed.
Lemma ratio_at_ok (w : world S) v r : ratio_at w v = Some r -> value_at w v = None -> 0 < Q2R r -> env S par w v = ln (Q2R r).
Proof.
  destruct v as [z b sg|i nz]; [|discriminate].
  destruct (ln_qproducts (chance Mq) (w z) (chance_pos Mq)) as [Q1 Q2]. destruct (ln_qproducts (chance Mp) (w z) (chance_pos Mp)) as [P1 P2].
  destruct (ln_qproducts (chance Mmu) (w z) (chance_pos Mmu)) as [M1 M2].
  destruct b; cbn [ratio_at]; try discriminate; intros R _ _; injection R as <-; rewrite env_sum by easy; cbn [each].
  - rewrite Q2R_red, Q2R_div by (apply nonzero_Q; lra). rewrite ln_div, Q2, P2 by assumption. rewrite <- Sum_minus.
    apply Sum_ext; intros x _. now rewrite model_q.
  - rewrite Q2R_red, Q2R_div by (apply nonzero_Q; lra). rewrite ln_div, Q2, M2 by assumption. rewrite <- Sum_minus.
    apply Sum_ext; intros x _. now rewrite model_q.
  - rewrite Q2. apply Sum_ext; intros x _. now rewrite model_q.
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
Definition at_world (a : ep) (w : slot -> list X) : option itv := iep (value_at w) (ratio_at w) a.
Definition iatom (x : atom) : option itv := match x with Mean i k a => imean i k (at_world a) | _ => None end.
Fixpoint iproduct (l : list atom) : option itv :=
  match l with [] => Some (exact 1)
  | x :: l => match iatom x, iproduct l with Some i, Some j => Some (imul i j) | _, _ => None end end.
Definition no_ratio (_ : var) : option Q := None.
Definition par_value (v : var) : option Q := match v with Par i nz => Some (parameter m i nz) | _ => None end.
Fixpoint iside (a : side) : option itv :=
  match a with [] => Some (exact 0)
  | (c, l) :: a => match iep par_value no_ratio c, iproduct l, iside a with
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
Lemma same_world (w v : world S) a i : (forall z, w z = v z) -> at_world a w = Some i -> inside i (den (env S par v) a).
Proof.
  intros H I. rewrite <- (den_ext (env S par w) (env S par v)).
  - revert I. apply iep_ok; [now apply env_ok|apply value_at_ok|apply ratio_at_ok].
  - intros [z b sg|j nz]; [|reflexivity]. unfold env. destruct z, b; cbn [val]; now rewrite H.
Qed.
Lemma iproduct_ok l i : iproduct l = Some i -> inside i (dproduct S par l).
Proof.
  revert i; induction l as [|x l IH]; intros i; cbn [iproduct dproduct].
  - intros [= <-]. rewrite <- Q2R_1. apply exact_ok.
  - destruct (iatom x) as [a|] eqn:X; [|discriminate]. destruct (iproduct l); [|discriminate].
    intros [= <-]. apply imul_ok; [|now apply IH]. destruct x as [j k a'| |]; try discriminate.
    revert X. apply imean_ok. intros w v j'. apply same_world.
Qed.
Lemma iside_ok a i : iside a = Some i -> inside i (dside S par a).
Proof.
  revert i; induction a as [|[c l] a IH]; intros i; cbn [iside dside].
  - intros [= <-]. rewrite <- Q2R_0. apply exact_ok.
  - destruct (iep _ _ c) as [e|] eqn:X; [|discriminate]. destruct (iproduct l) eqn:P; [|discriminate].
    destruct (iside a); [|discriminate]. intros [= <-]. apply iadd_ok; [|now apply IH].
    apply imul_ok; [|now apply iproduct_ok]. revert X. apply iep_ok.
    + apply penv_ok, parS_ok.
    + intros [|i' nz] d; cbn; [discriminate|]. now intros [= <-].
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
Definition size_here (a : assumptions) : bool :=
  match batch_size (assumed a) with
  | Some (j, nz) => Qeq_bool (parameter m j nz) (inject_Z (Z.of_nat (Nat.max 2 size))) | None => true end.
Definition satisfies (a : assumptions) : bool :=
  match equal_always (assumed a), regions a with [], [] => true | _, _ => false end
  && forallb zero_here (equal_now (assumed a)) && size_here a && forallb (fun i => 0 <? Qnum (look (values m) i))%Z (positive a).
Lemma zero_here_ok x : zero_here x = true -> dside S par (fst x) = dside S par (snd x).
Proof.
  unfold zero_here. destruct (iside _) as [i|] eqn:I; [|discriminate]. intros H. apply andb_prop in H as [A B].
  apply Qeq_bool_iff, Qeq_eqR in A, B. apply iside_ok in I. unfold inside in I.
  rewrite (normal_ok S par parS_ok), app_ok, (minus_ok S par parS_ok), A, B, Q2R_0 in I. lra.
Qed.
Lemma satisfies_ok a : satisfies a = true -> satisfied S par a.
Proof.
  unfold satisfies, satisfied, holds, size_here. intros H. apply andb_prop in H as [H P]. apply andb_prop in H as [H Z].
  apply andb_prop in H as [H N]. destruct (equal_always (assumed a)); [|discriminate]. destruct (regions a); [|discriminate].
  rewrite forallb_forall in N, P. repeat split; try easy.
  - intros x y I. apply (zero_here_ok (x, y)), N, I.
  - intros j nz B. rewrite B in Z. apply Qeq_bool_iff, Qeq_eqR in Z. unfold model_par. rewrite Z.
    change (Setting.size S) with (Nat.max 2 size). rewrite INR_IZR_INZ. unfold inject_Z, Q2R. cbn [Qnum Qden]. field.
  - intros i I. pose proof (P i I) as Q. unfold model_par, parameter. cbn [andb]. destruct (qz _) eqn:Y; [rewrite Q2R_1; lra|now apply positive_Q].
Qed.
Definition refutes (a : assumptions) (known : list side) (c : part) : bool :=
  satisfies a && match rows c, zeros (assumed a) known (proof c) with
  | [], Some z => match iside (normal (left c ++ minus (right c) ++ z)) with
      | Some i => contradicts (rel c) i | None => false end
  | _, _ => false end.
Lemma refutes_ok a known c : List.Forall (fun z => dside S par z = 0) known -> refutes a known c = true ->
  satisfied S par a /\ ~ true_part S par c.
Proof.
  intros K. unfold refutes. intros H. apply andb_prop in H as [A H]. pose proof (satisfies_ok a A) as Sa.
  split; [exact Sa|]. destruct (rows c); [|discriminate].
  destruct (zeros (assumed a) known (proof c)) as [z|] eqn:Z; [|discriminate].
  destruct (iside _) as [i|] eqn:I; [|discriminate]. apply iside_ok in I.
  pose proof (contradicts_ok _ _ _ H I) as C.
  rewrite (normal_ok S par parS_ok), !app_ok, (minus_ok S par parS_ok) in C.
  rewrite (zeros_ok S par parS_ok _ _ _ _ (proj1 Sa) K Z) in C.
  unfold true_part. destruct (rel c); lra.
Qed.
End Model.
