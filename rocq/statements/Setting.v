(* One sample, a batch of n, and the steps of a sequence: a policy q that moves along one direction of theta, a reference p,
   a sampler mu.

   A sample is a sequence of tokens, drawn one after the other: next-token probabilities are positive, and distributions for
   every t; those of q are differentiable at theta.  Nothing else is asked: softmax logits are one instance (Softmax.v), and
   any finite space is one, of sequences of one token.  What is averaged is a function of a world: the segments in each slot.
   A single sample is drawn into the slot Whole; a batch is one sample, Self, beside n - 1 Others; or two, Self and Other,
   beside the n - 2 of the Rest.  Over the steps of a sequence it is added up, with what is before, at and after the step in
   the slots Past, Now and Future.  A loss is a function of t and of a world, in which all that is detached stands still;
   `grad` is its derivative. *)
From Coq Require Import Reals List Lra Lia Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Tokens.
Import ListNotations.
Open Scope R_scope.

Record setting := {
  token : Type;
  next : list token -> list token;     (* what may follow a prefix; a sequence ends where nothing does *)
  more : nat;                          (* ... or so many tokens after its first *)
  starts : next [] <> [];
  here : nat -> list token;            (* the samples of which a value is taken *)
  here_ok : forall k, here k <> [];
  theta : R;
  next_q : R -> list token -> token -> R;   (* next-token probabilities, given the prefix *)
  next_p : list token -> token -> R;
  next_mu : list token -> token -> R;
  next_q_pos : forall u a, 0 < next_q theta u a;
  next_q_sum : forall t u, next u <> [] -> Sum (next u) (next_q t u) = 1;
  next_q_diff : forall u a, ex_derive (fun t => next_q t u a) theta;
  next_p_pos : forall u a, 0 < next_p u a;
  next_p_sum : forall u, next u <> [] -> Sum (next u) (next_p u) = 1;
  next_mu_pos : forall u a, 0 < next_mu u a;
  next_mu_sum : forall u, next u <> [] -> Sum (next u) (next_mu u) = 1;
  next_old : list token -> token -> R;      (* a further policy *)
  next_old_pos : forall u a, 0 < next_old u a;
  next_old_sum : forall u, next u <> [] -> Sum (next u) (next_old u) = 1;
  paid : nat -> list token -> token -> R;   (* rewards of a token, which theta does not move *)
  any : nat -> list (@segment token) -> R;  (* any function of the outcomes of a slot: 1 past, 2 now, 3 future, else 0 *)
  fn : nat -> nat -> R -> @segment token -> R;   (* generic functions and their derivatives along log q *)
  fn_diff : forall i d l x, is_derive (fun l => fn i d l x) l (fn i (S d) l x);
  names : nat -> R -> R -> list (list (@segment token)) -> R;   (* what names stand for, of the contents of their slots: regions as of
                                                                   the first theta, all else as of the second *)
  size : nat;                          (* n *)
  size_ok : (2 <= size)%nat }.

Inductive measure := Mq | Mp | Mmu | Mcount | Msample.
Inductive index := Single | Batch | Pair | Steps | BatchSteps.
Inductive slot := Whole | Self | Other | Others | Rest | Past | Now | Future.
Definition scode (z : slot) : nat :=
  match z with Whole => 0 | Self => 1 | Other => 2 | Others => 3 | Rest => 4 | Past => 5 | Now => 6 | Future => 7 end.
Definition same_slot (y z : slot) : bool := Nat.eqb (scode y) (scode z).
Lemma same_slot_eq y z : same_slot y z = true -> y = z.
Proof. intros H. apply Nat.eqb_eq in H. now destruct y, z. Qed.
Lemma same_slot_refl z : same_slot z z = true. Proof. apply Nat.eqb_refl. Qed.
(* what is drawn, and the slots over which its density is a product *)
Definition slots (i : index) : list slot :=
  match i with Single | Steps => [Whole] | Batch => [Self; Others] | Pair => [Self; Other; Rest] | BatchSteps => [Whole; Others] end.
Definition factors_of (i : index) : list slot :=
  match i with Steps => [Past; Now; Future] | BatchSteps => [Past; Now; Future; Others] | _ => slots i end.
Definition draws (i : index) (n : nat) : list slot :=
  match i with
  | Single | Steps => [Whole] | Batch => Self :: repeat Others (n - 1) | Pair => Self :: Other :: repeat Rest (n - 2)
  | BatchSteps => Whole :: repeat Others (n - 1) end.
Definition stepwise (i : index) : bool := match i with Steps | BatchSteps => true | _ => false end.
Definition of_steps (z : slot) : bool := match z with Past | Now | Future => true | _ => false end.
Definition one_position (z : slot) : bool := match z with Others | Rest | Past | Future => false | _ => true end.
Definition normed (m : measure) : bool := match m with Mcount => false | _ => true end.
Definition summed (m : measure) : bool := match m with Msample => false | _ => true end.
Definition probability (m : measure) : bool := match m with Mq | Mp | Mmu => true | _ => false end.

Section Worlds.
Variable S : setting.
Definition outcome := @segment (token S).
Notation X := outcome.

(* whole sequences, and the densities of segments *)
Definition outcomes : list X := map (pair []) (walk (next S) (Datatypes.S (more S)) []).
Definition q (t : R) (x : X) : R := product (next_q S t) (fst x) (snd x).
Definition p (x : X) : R := product (next_p S) (fst x) (snd x).
Definition mu (x : X) : R := product (next_mu S) (fst x) (snd x).
Definition old (x : X) : R := product (next_old S) (fst x) (snd x).
Definition given (i : nat) (x : X) : R := sum (paid S i) (fst x) (snd x).
(* the number of tokens; 1 where there is none, as in no sample *)
Definition length (l : list X) : R := INR (Nat.max 1 (List.length (flat_map snd l))).
Lemma length_nonzero l : length l <> 0.
Proof. apply not_0_INR. lia. Qed.
Lemma q_pos x : 0 < q (theta S) x. Proof. apply product_pos, next_q_pos. Qed.
Lemma p_pos x : 0 < p x. Proof. apply product_pos, next_p_pos. Qed.
Lemma mu_pos x : 0 < mu x. Proof. apply product_pos, next_mu_pos. Qed.
Lemma sum_outcomes f : (forall u, next S u <> [] -> Sum (next S u) (f u) = 1) ->
  Sum outcomes (fun x => product f (fst x) (snd x)) = 1.
Proof. intros H. unfold outcomes. rewrite Sum_map. exact (walk_mass (next S) f H _ []). Qed.
Lemma q_sum t : Sum outcomes (q t) = 1. Proof. apply sum_outcomes, next_q_sum. Qed.
Lemma p_sum : Sum outcomes p = 1. Proof. apply sum_outcomes, next_p_sum. Qed.
Lemma mu_sum : Sum outcomes mu = 1. Proof. apply sum_outcomes, next_mu_sum. Qed.
Lemma q_diff x : ex_derive (fun t => q t x) (theta S).
Proof.
  destruct x as [u v]. unfold q. cbn [fst snd]. revert u; induction v as [|a v IH]; intros u; cbn [product].
  - apply ex_derive_const.
  - apply (ex_derive_mult (fun t => next_q S t u a)); [apply next_q_diff|apply IH].
Qed.

Definition world := slot -> list X.
Definition nobody : world := fun _ => [].
Definition add (z : slot) (x : X) (w : world) : world := fun y => if same_slot z y then x :: w y else w y.
Definition alone (x : X) : world := add Whole x nobody.

Definition q0 : X -> R := q (theta S).
Definition density (m : measure) (t : R) (x : X) : R :=
  match m with Mq => q t x | Mp => p x | Mmu => mu x | _ => 1 end.
Definition support (m : measure) (k : nat) : list X := match m with Msample => [([], here S k)] | _ => outcomes end.
(* E_m[F], all draws independent; k counts them *)
Fixpoint E (m : measure) (t : R) (k : nat) (ds : list slot) (F : world -> R) : R :=
  match ds with
  | [] => F nobody
  | z :: ds => Sum (support m k) (fun x => density m t x * E m t (Datatypes.S k) ds (fun w => F (add z x w))) end.
(* over the steps of the sequence that is drawn *)
Definition at_place (c : place) (w : world) : world := add Past (past_ c) (add Now (now_ c) (add Future (future_ c) w)).
Definition spread (i : index) (F : world -> R) (w : world) : R :=
  if stepwise i then Sum (flat_map places (w Whole)) (fun c => F (at_place c w)) else F w.
Definition mean_at (t : R) (m : measure) (i : index) (F : world -> R) : R := E m t 0 (draws i (size S)) (spread i F).
Definition mean (m : measure) (i : index) (F : world -> R) : R := mean_at (theta S) m i F.
Definition s (x : X) : R := Derive (fun t => ln (q t x)) (theta S).
Definition loss := R -> world -> R.
Definition grad (L : loss) (w : world) : R := Derive (fun t => L t w) (theta S).

Lemma q0_pos x : 0 < q0 x. Proof. apply q_pos. Qed.
Lemma density_pos m x : 0 < density m (theta S) x.
Proof. destruct m; cbn; try lra; [apply q_pos|apply p_pos|apply mu_pos]. Qed.

(* ---------- means ---------- *)
(* worlds that are drawn: as many outcomes in a slot as there are draws into it *)
Definition count (z : slot) (ds : list slot) : nat := List.length (filter (same_slot z) ds).
Definition drawn (ds : list slot) (w : world) : Prop := forall z, List.length (w z) = count z ds.
Lemma drawn_nobody : drawn [] nobody. Proof. intros z. reflexivity. Qed.
Lemma drawn_add z x ds w : drawn ds w -> drawn (z :: ds) (add z x w).
Proof.
  intros H y. unfold add, count. cbn [filter]. replace (same_slot y z) with (same_slot z y) by (apply Nat.eqb_sym).
  specialize (H y). unfold count in H. destruct (same_slot z y); cbn [List.length]; lia.
Qed.
Lemma E_drawn m t k ds F G : (forall w, drawn ds w -> F w = G w) -> E m t k ds F = E m t k ds G.
Proof.
  revert k F G; induction ds as [|z ds IH]; intros k F G H; cbn [E]; [apply H, drawn_nobody|].
  apply Sum_ext; intros x _. f_equal. apply IH; intros w W. now apply H, drawn_add.
Qed.
(* worlds that are drawn from a measure: each outcome in its support *)
Fixpoint possible (m : measure) (k : nat) (ds : list slot) (w : world) : Prop :=
  match ds with
  | [] => w = nobody
  | z :: ds => exists x v, In x (support m k) /\ possible m (Datatypes.S k) ds v /\ w = add z x v end.
Lemma possible_drawn m k ds w : possible m k ds w -> drawn ds w.
Proof.
  revert k w; induction ds as [|z ds IH]; intros k w; cbn [possible]; [intros ->; apply drawn_nobody|].
  intros [x [v [_ [P ->]]]]. apply drawn_add, (IH _ _ P).
Qed.
Lemma E_possible m t k ds F G : (forall w, possible m k ds w -> F w = G w) -> E m t k ds F = E m t k ds G.
Proof.
  revert k F G; induction ds as [|z ds IH]; intros k F G H; cbn [E]; [now apply H|].
  apply Sum_ext; intros x X. f_equal. apply IH; intros w W. apply H. exists x, w. auto.
Qed.
Lemma E_ext m t k ds F G : (forall w, F w = G w) -> E m t k ds F = E m t k ds G.
Proof. intros H. apply E_drawn; intros; apply H. Qed.
Lemma E_plus m t k ds F G : E m t k ds (fun w => F w + G w) = E m t k ds F + E m t k ds G.
Proof.
  revert k F G; induction ds as [|z ds IH]; intros k F G; cbn [E]; [reflexivity|].
  rewrite <- Sum_plus. apply Sum_ext; intros x _. rewrite IH. ring.
Qed.
Lemma E_scal m t k ds c F : E m t k ds (fun w => c * F w) = c * E m t k ds F.
Proof.
  revert k F; induction ds as [|z ds IH]; intros k F; cbn [E]; [reflexivity|].
  rewrite <- Sum_scal. apply Sum_ext; intros x _. rewrite IH. ring.
Qed.
Lemma E_zero m t k ds : E m t k ds (fun _ => 0) = 0.
Proof. rewrite (E_ext m t k ds _ (fun _ => 0 * 0)) by (intros; ring). rewrite E_scal; ring. Qed.
Lemma E_nonneg m k ds F : (forall w, 0 <= F w) -> 0 <= E m (theta S) k ds F.
Proof.
  revert k F; induction ds as [|z ds IH]; intros k F H; cbn [E]; [apply H|].
  apply Sum_nonneg; intros x _. apply Rmult_le_pos; [left; apply density_pos|]. apply IH; intros; apply H.
Qed.
Lemma spread_nonneg i F w : (forall w, 0 <= F w) -> 0 <= spread i F w.
Proof. intros H. unfold spread. destruct (stepwise i); [apply Sum_nonneg; intros|]; apply H. Qed.
Lemma mean_nonneg m i F : (forall w, 0 <= F w) -> 0 <= mean m i F.
Proof. intros H. apply E_nonneg. intros w. now apply spread_nonneg. Qed.
Lemma E_Sum {Y} m t k ds (l : list Y) (F : Y -> world -> R) :
  E m t k ds (fun w => Sum l (fun y => F y w)) = Sum l (fun y => E m t k ds (F y)).
Proof.
  induction l as [|y l IH]; cbn [Sum]; [apply E_zero|]. rewrite <- IH. apply (E_plus m t k ds (F y) (fun w => Sum l (fun y => F y w))).
Qed.
(* the worlds that a mean speaks of *)
Definition reached (m : measure) (i : index) (w : world) : Prop :=
  if stepwise i then exists v y c, possible m 0 (draws i (size S)) v /\ v Whole = [y] /\ In c (places y) /\ w = at_place c v
  else possible m 0 (draws i (size S)) w.
Lemma reached_place m i w c : stepwise i = true -> possible m 0 (draws i (size S)) w -> In c (flat_map places (w Whole)) ->
  reached m i (at_place c w).
Proof.
  intros T D C. unfold reached. rewrite T. assert (O : List.length (w Whole) = 1%nat).
  { rewrite (possible_drawn _ _ _ _ D Whole). destruct i; try discriminate; cbn [draws]; [reflexivity|]. unfold count. cbn.
    generalize (size S - 1)%nat. intros n. induction n as [|n IH]; [reflexivity|exact IH]. }
  destruct (w Whole) as [|y [|]] eqn:W; try discriminate. exists w, y, c. cbn [flat_map] in C. rewrite app_nil_r in C. auto.
Qed.
Lemma mean_at_reached t m i F G : (forall w, reached m i w -> F w = G w) -> mean_at t m i F = mean_at t m i G.
Proof.
  intros H. apply E_possible. intros w D. unfold spread. destruct (stepwise i) eqn:T.
  - apply Sum_ext. intros c C. apply H. now apply reached_place.
  - apply H. unfold reached. now rewrite T.
Qed.
Lemma mean_at_ext t m i F G : (forall w, F w = G w) -> mean_at t m i F = mean_at t m i G.
Proof. intros H. apply mean_at_reached. auto. Qed.
Lemma spread_plus i F G w : spread i (fun w => F w + G w) w = spread i F w + spread i G w.
Proof. unfold spread. destruct (stepwise i); [apply Sum_plus|reflexivity]. Qed.
Lemma mean_at_plus t m i F G : mean_at t m i (fun w => F w + G w) = mean_at t m i F + mean_at t m i G.
Proof. unfold mean_at. rewrite <- E_plus. apply E_ext. intros w. apply spread_plus. Qed.
Lemma mean_at_scal t m i c F : mean_at t m i (fun w => c * F w) = c * mean_at t m i F.
Proof. unfold mean_at. rewrite <- E_scal. apply E_ext. intros w. unfold spread. destruct (stepwise i); [apply Sum_scal|reflexivity]. Qed.
Lemma mean_at_zero t m i : mean_at t m i (fun _ => 0) = 0.
Proof. rewrite (mean_at_ext t m i _ (fun _ => 0 * 0)) by (intros; ring). rewrite mean_at_scal; ring. Qed.
Definition wherever (m : measure) (P : world -> Prop) : Prop := forall x, In x (support m 0) -> P (alone x).
Lemma single_nonneg m F : wherever m (fun w => 0 <= F w) -> 0 <= mean m Single F.
Proof.
  intros H. unfold mean, mean_at. cbn [draws E spread stepwise]. apply Sum_nonneg; intros x I.
  apply Rmult_le_pos; [left; apply density_pos|now apply H].
Qed.
Lemma mass m k t : normed m = true -> m = Mq \/ t = theta S -> Sum (support m k) (density m t) = 1.
Proof.
  intros N _. destruct m; cbn; try discriminate; [apply q_sum|apply p_sum|apply mu_sum|ring].
Qed.
Lemma E_const m k ds c : normed m = true -> E m (theta S) k ds (fun _ => c) = c.
Proof.
  intros N. revert k; induction ds as [|z ds IH]; intros k; cbn [E]; [reflexivity|].
  rewrite (Sum_ext _ _ (fun x => c * density m (theta S) x)) by (intros; rewrite IH; ring).
  rewrite Sum_scal, mass by auto. ring.
Qed.

(* ---------- independence: a function of some slots times one of the others ---------- *)
Definition speaks_of (g : slot -> bool) (F : world -> R) : Prop :=
  forall w v, (forall z, g z = true -> w z = v z) -> F w = F v.
Definition except (g : slot -> bool) (z : slot) : bool := negb (g z).
Lemma add_elsewhere g z x w F : speaks_of g F -> g z = false -> F (add z x w) = F w.
Proof.
  intros H G. apply H; intros y Y. unfold add. destruct (same_slot z y) eqn:E1; [|reflexivity].
  apply same_slot_eq in E1. congruence.
Qed.
Lemma speaks_add g z x F : speaks_of g F -> speaks_of g (fun w => F (add z x w)).
Proof. intros H w v A. apply H; intros y Y. unfold add. now rewrite (A y Y). Qed.
Lemma support_any m k j : summed m = true -> support m k = support m j. Proof. now destruct m. Qed.
Lemma E_count m t k j ds F : summed m = true -> E m t k ds F = E m t j ds F.
Proof.
  intros U. revert k j F; induction ds as [|z ds IH]; intros k j F; cbn [E]; [reflexivity|].
  rewrite (support_any m k j U). apply Sum_ext; intros x _. f_equal. apply IH.
Qed.
Theorem independent m t k g ds F G : summed m = true -> speaks_of g F -> speaks_of (except g) G ->
  E m t k ds (fun w => F w * G w) = E m t k (filter g ds) F * E m t k (filter (except g) ds) G.
Proof.
  intros U. revert k F G; induction ds as [|z ds IH]; intros k F G HF HG; cbn [E filter]; [reflexivity|].
  unfold except at 1. destruct (g z) eqn:Z; cbn [negb E].
  - rewrite Rmult_comm, <- Sum_scal. apply Sum_ext; intros x _.
    rewrite (E_ext m t _ ds _ (fun w => F (add z x w) * G w)) by
      (intros; rewrite (add_elsewhere (except g) z x w G HG); [reflexivity|unfold except; now rewrite Z]).
    rewrite IH by (auto using speaks_add). rewrite (E_count m t (Datatypes.S k) k (filter (except g) ds) G U). ring.
  - rewrite <- Sum_scal. apply Sum_ext; intros x _.
    rewrite (E_ext m t _ ds _ (fun w => F w * G (add z x w))) by (intros; now rewrite (add_elsewhere g z x w F HF Z)).
    rewrite IH by (auto using speaks_add). rewrite (E_count m t (Datatypes.S k) k (filter g ds) F U). ring.
Qed.
Lemma only_of m k g ds F : probability m = true -> speaks_of (except g) F ->
  E m (theta S) k ds F = E m (theta S) k (filter (except g) ds) F.
Proof.
  intros M H. assert (U : summed m = true) by now destruct m. assert (N : normed m = true) by now destruct m.
  rewrite (E_ext m _ k ds F (fun w => 1 * F w)) by (intros; ring).
  rewrite (independent m (theta S) k g ds (fun _ => 1) F U) by (auto; intros ? ? ?; reflexivity).
  rewrite E_const by exact N. ring.
Qed.

(* ---------- the score function ---------- *)
Lemma s_derive x : is_derive (fun t => ln (q t x)) (theta S) (s x).
Proof.
  apply Derive_correct. eexists. apply derive_ln; [apply q_pos|apply Derive_correct, q_diff].
Qed.
Lemma q_derive x : is_derive (fun t => q t x) (theta S) (q0 x * s x).
Proof.
  pose proof (derive_ln (fun t => q t x) (theta S) _ (q_pos x) (Derive_correct _ _ (q_diff x))) as D.
  assert (U : s x = Derive (fun t => q t x) (theta S) / q (theta S) x) by exact (is_derive_unique _ _ _ D).
  rewrite U.
  replace (_ * _) with (Derive (fun t => q t x) (theta S)); [apply Derive_correct, q_diff|].
  unfold q0. field. apply Rgt_not_eq, q_pos.
Qed.
Theorem score_mean_zero : Sum (outcomes) (fun x => q0 x * s x) = 0.
Proof.
  assert (D : is_derive (fun t => Sum (outcomes) (q t)) (theta S) (Sum (outcomes) (fun x => q0 x * s x))).
  { apply Sum_derive; intros; apply q_derive. }
  apply is_derive_unique in D. rewrite <- D, (Derive_ext _ (fun _ => 1)) by (intros; apply q_sum).
  apply Derive_const.
Qed.
(* a quantity of a slot is the sum over its positions *)
Lemma sum_add z x w f y : Sum (add z x w y) f = (if same_slot z y then f x else 0) + Sum (w y) f.
Proof. unfold add. destruct (same_slot z y); cbn [Sum]; ring. Qed.
Lemma slot_score_mean_zero k ds z : E Mq (theta S) k ds (fun w => Sum (w z) s) = 0.
Proof.
  revert k; induction ds as [|y ds IH]; intros k; cbn [E]; [reflexivity|].
  rewrite (Sum_ext _ _ (fun x => (if same_slot y z then 1 else 0) * (q0 x * s x))).
  - rewrite Sum_scal. cbn [support]. rewrite score_mean_zero. ring.
  - intros x _. rewrite (E_ext Mq _ _ ds _ (fun w => (if same_slot y z then s x else 0) + Sum (w z) s)) by (intros; apply sum_add).
    rewrite E_plus, IH, E_const by reflexivity. cbn [density]. unfold q0. destruct (same_slot y z); ring.
Qed.

(* ---------- sums over all that is drawn ---------- *)
Definition total (zs : list slot) (f : X -> R) (w : world) : R := Sum zs (fun z => Sum (w z) f).
Lemma total_nobody zs f : total zs f nobody = 0. Proof. unfold total. apply Sum_zero. Qed.
Lemma total_add zs z x w f : NoDup zs -> In z zs -> total zs f (add z x w) = f x + total zs f w.
Proof.
  intros N I. unfold total. rewrite (Sum_ext zs _ (fun y => (if same_slot z y then f x else 0) + Sum (w y) f)) by (intros; apply sum_add).
  rewrite Sum_plus. f_equal. revert N I. induction zs as [|y zs IH]; intros N I; [easy|]. cbn [Sum].
  apply NoDup_cons_iff in N as [N1 N2]. destruct (same_slot z y) eqn:Q.
  - apply same_slot_eq in Q. subst y. rewrite (Sum_ext zs _ (fun _ => 0)), Sum_zero; [ring|].
    intros y Y. destruct (same_slot z y) eqn:Q; [apply same_slot_eq in Q; congruence|reflexivity].
  - destruct I as [->|I]; [now rewrite same_slot_refl in Q|]. rewrite IH by assumption. ring.
Qed.
Lemma slots_once i : NoDup (slots i).
Proof. destruct i; cbn; repeat constructor; cbn; intuition discriminate. Qed.
Lemma draws_in i n z : In z (draws i n) -> In z (slots i).
Proof.
  destruct i; cbn [draws slots]; cbn; intuition auto; apply repeat_spec in H0 || apply repeat_spec in H; subst; auto.
Qed.

(* log-derivative: the measure moves, and what is averaged does *)
Theorem E_derive m k ds zs (F : R -> world -> R) (F' : world -> R) : NoDup zs -> (forall z, In z ds -> In z zs) ->
  (forall w, possible m k ds w -> is_derive (fun t => F t w) (theta S) (F' w)) ->
  is_derive (fun t => E m t k ds (F t)) (theta S)
    (E m (theta S) k ds (fun w => F' w + match m with Mq => F (theta S) w * total zs s w | _ => 0 end)).
Proof.
  intros N. revert k F F'; induction ds as [|z ds IH]; intros k F F' I H; cbn [E].
  - rewrite total_nobody. replace (_ + _) with (F' nobody) by (destruct m; ring). now apply H.
  - apply (Sum_derive _ (fun t x => density m t x * E m t (Datatypes.S k) ds (fun w => F t (add z x w)))). intros x X.
    assert (D : is_derive (fun t => E m t (Datatypes.S k) ds (fun w => F t (add z x w))) (theta S)
      (E m (theta S) (Datatypes.S k) ds (fun w => F' (add z x w) + match m with Mq => F (theta S) (add z x w) * total zs s w | _ => 0 end))).
    { apply (IH (Datatypes.S k) (fun t w => F t (add z x w)) (fun w => F' (add z x w))).
      - intros; apply I; now right.
      - intros w W. apply H. exists x, w. auto. }
    assert (Z : forall w, total zs s (add z x w) = s x + total zs s w) by (intros; apply total_add; [exact N|apply I; now left]).
    destruct m; cbn [density] in *; [|apply derive_scal; exact D ..].
    replace (_ * _) with (q0 x * s x * E Mq (theta S) (Datatypes.S k) ds (fun w => F (theta S) (add z x w))
      + q0 x * E Mq (theta S) (Datatypes.S k) ds (fun w => F' (add z x w) + F (theta S) (add z x w) * total zs s w)).
    + apply (derive_mult (fun t => q t x)); [apply q_derive|exact D].
    + rewrite (E_ext Mq _ _ ds (fun w => F' (add z x w) + F (theta S) (add z x w) * total zs s (add z x w))
        (fun w => (F' (add z x w) + F (theta S) (add z x w) * total zs s w) + s x * F (theta S) (add z x w))) by (intros; rewrite Z; ring).
      rewrite (E_plus Mq _ _ ds _ (fun w => s x * F (theta S) (add z x w))), E_scal. unfold q0. ring.
Qed.

(* change of measure *)
Theorem change_of_measure m n k ds zs F : NoDup zs -> (forall z, In z ds -> In z zs) -> summed m = true -> summed n = true ->
  E m (theta S) k ds F = E n (theta S) k ds (fun w =>
    F w * exp (total zs (fun x => ln (density m (theta S) x) - ln (density n (theta S) x)) w)).
Proof.
  intros N. revert k F; induction ds as [|z ds IH]; intros k F I M M'; cbn [E].
  - rewrite total_nobody, exp_0. ring.
  - replace (support n k) with (support m k) by (destruct m, n; easy). apply Sum_ext; intros x _.
    rewrite (IH (Datatypes.S k)) by (auto; intros; apply I; now right).
    set (f := fun x => ln (density m (theta S) x) - ln (density n (theta S) x)).
    rewrite (E_ext n _ _ ds (fun w => F (add z x w) * exp (total zs f (add z x w)))
      (fun w => (density m (theta S) x / density n (theta S) x) * (F (add z x w) * exp (total zs f w)))).
    + rewrite E_scal. field. apply Rgt_not_eq, density_pos.
    + intros w. rewrite (total_add zs z x w f N (I z (or_introl eq_refl))), exp_plus.
      unfold f at 1. unfold Rminus. rewrite exp_plus, exp_Ropp, !exp_ln by apply density_pos. unfold Rdiv. ring.
Qed.

(* ---------- moments: sums over independent positions ---------- *)
Notation mean1 m f := (Sum (support m 0) (fun x => density m (theta S) x * f x)).
Lemma first_moment m k z n f : probability m = true ->
  E m (theta S) k (repeat z n) (fun w => Sum (w z) f) = INR n * mean1 m f.
Proof.
  intros M. assert (N : normed m = true) by now destruct m. assert (U : summed m = true) by now destruct m.
  revert k; induction n as [|n IH]; intros k; [cbn; ring|]. cbn [repeat E]. rewrite S_INR.
  rewrite (Sum_ext _ _ (fun x => density m (theta S) x * f x + (INR n * mean1 m f) * density m (theta S) x)).
  - rewrite Sum_plus, Sum_scal, mass by auto. rewrite (support_any m k 0 U). ring.
  - intros x _. rewrite (E_ext m _ _ _ _ (fun w => f x + Sum (w z) f)) by (intros; rewrite sum_add, same_slot_refl; reflexivity).
    rewrite E_plus, E_const, IH by exact N. ring.
Qed.
Lemma second_moment m k z n f g : probability m = true ->
  E m (theta S) k (repeat z n) (fun w => Sum (w z) f * Sum (w z) g) =
  INR n * mean1 m (fun x => f x * g x) + INR n * (INR n - 1) * (mean1 m f * mean1 m g).
Proof.
  intros M. assert (N : normed m = true) by now destruct m. assert (U : summed m = true) by now destruct m.
  revert k; induction n as [|n IH]; intros k; [cbn; ring|]. cbn [repeat E]. rewrite S_INR.
  set (c := INR n * mean1 m (fun x => f x * g x) + INR n * (INR n - 1) * (mean1 m f * mean1 m g)).
  rewrite (Sum_ext _ _ (fun x => density m (theta S) x * (f x * g x) + ((INR n * mean1 m g) * (density m (theta S) x * f x)
    + ((INR n * mean1 m f) * (density m (theta S) x * g x) + c * density m (theta S) x)))).
  - rewrite !Sum_plus, !Sum_scal, mass by auto. rewrite (support_any m k 0 U). unfold c. ring.
  - intros x _. rewrite (E_ext m _ _ _ _ (fun w => f x * g x + (f x * Sum (w z) g + (g x * Sum (w z) f + Sum (w z) f * Sum (w z) g))))
      by (intros; rewrite !sum_add, same_slot_refl; ring).
    rewrite !E_plus, !E_scal, E_const, !first_moment, IH by assumption. fold c. ring.
Qed.
End Worlds.

(* How many samples stand at a slot. *)
Lemma count_repeat z y n : count z (repeat y n) = if same_slot z y then n else O.
Proof.
  unfold count. induction n as [|n IH]; cbn [repeat filter]; [now destruct (same_slot z y)|].
  destruct (same_slot z y); cbn [List.length]; now rewrite IH.
Qed.
Lemma count_cons z y ds : count z (y :: ds) = ((if same_slot z y then 1 else 0) + count z ds)%nat.
Proof. unfold count. cbn [filter]. now destruct (same_slot z y). Qed.
Lemma filter_same z ds : filter (same_slot z) ds = repeat z (count z ds).
Proof.
  induction ds as [|y ds IH]; [reflexivity|]. rewrite count_cons. cbn [filter]. destruct (same_slot z y) eqn:Q; [|exact IH].
  apply same_slot_eq in Q. subst y. cbn [repeat Nat.add]. now rewrite IH.
Qed.
Lemma filter_apart y z ds : same_slot y z = false -> filter (same_slot y) (filter (except (same_slot z)) ds) = filter (same_slot y) ds.
Proof.
  intros H. induction ds as [|x ds IH]; [reflexivity|]. cbn [filter]. unfold except at 1. destruct (same_slot z x) eqn:Q; cbn [negb filter].
  - apply same_slot_eq in Q. subst x. now rewrite H.
  - now rewrite IH.
Qed.
